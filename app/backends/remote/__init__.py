"""Executes a run whose agent is remote: its turns, tickets and endings.

It writes the same events and checkpoints as a local run. The protocols are in `backends/a2a` and
`backends/remote_holdfast`.
"""
