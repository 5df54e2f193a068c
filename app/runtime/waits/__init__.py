"""Waits without a ticket: a person's or plugin's pause, and a pause for a provider's rate limit.

Waits for tickets are in `runtime/endings` and `runtime/tool_calls/tickets`.
"""
