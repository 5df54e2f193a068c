"""The AgentEvents by subject, and the rules that merge and measure them.

Numbering, committing and publishing events is in `app/events`.
"""
