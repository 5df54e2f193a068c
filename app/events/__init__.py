"""The event log: numbers, group commit, and following a stream.

`group_commit` writes the events of executing runs, many runs in one transaction; `transaction` is how a
command emits. Both publish after the commit. `follow` reads the log where a hint was lost, so a client
gets each event once and in order. The events themselves are in `domain/events`.
"""
