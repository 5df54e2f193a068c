"""A run whose agent is remote: its turns, tickets and endings.

It writes the same events and checkpoints as a local run. How a certain remote is talked to is in
`backends/a2a` and `backends/remote_holdfast`.
"""
