"""Deliveries and follow-up jobs in the queue library's tables, and the follow-ups that failed."""
