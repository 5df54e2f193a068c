"""Tickets, decisions, remembered rules, and the feed of tickets."""
