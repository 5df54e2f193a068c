"""Publishing committed events: to subscribers of this process (`hub`) and to other processes (`relay`).

A hint may be lost; the log in `storage/events` is the truth.
"""
