"""The events of a run by subject, their union in `agent_events`, and the rules that merge and measure them.

Numbering, committing and publishing events is in `app/events`.
"""
