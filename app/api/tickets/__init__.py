"""Routes of tickets, remembered rules and the audit trail. The rules are in `commands/tickets`."""
