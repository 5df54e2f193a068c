"""Waits without a ticket: a pause by a person, and a pause that a provider asks for.

Waits for tickets are in `runtime/endings` and `runtime/tool_calls/tickets`.
"""
