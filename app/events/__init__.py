"""What runs and commands say: numbered, committed, and only then seen.

`writer.py` commits what executing runs say, many at once; `outgoing.py` is the one transaction in
which commands may speak. Both hand what is durable to `hub.py` (subscribers of this process) and
`relay.py` (other processes), whose hints `notify_wire.py` or `nats_wire.py` carries. A hint may be
lost: `follow.py` reads the log wherever numbers are missing, so a client gets each event once, in
order. `ticket_feed.py` follows what becomes of a tenant's tickets, under numbers of its own. Nothing
here waits for a client.
May import `storage`, `domain` and `clock`.
"""
