"""Processes of Holdfast that begin as a fork, so that a test doesn't pay for the imports each time.

Imports are most of the CPU that a start takes. A forked process is a process of its own in all other respects:
it has its own signals, its own output and its own end.
"""
