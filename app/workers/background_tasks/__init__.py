"""Execution of background tasks: tool calls that continue while their run continues or waits."""
