"""The event log: appending, reading and counting. Publishing is in `app/events`."""
