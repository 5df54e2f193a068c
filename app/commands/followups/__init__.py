"""Queued jobs that act on a second run or on a remote agent; `dispatch` executes each by its kind.

A follow-up is enqueued in the transaction that makes it necessary, because no transaction locks two
threads. The queue itself is in `workers/delivery_queue` and `storage/queue`.
"""
