"""Tickets and decisions. How a decision is checked and stored is in `commands/tickets`."""
