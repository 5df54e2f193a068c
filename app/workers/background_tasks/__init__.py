"""Executing background tasks: tool calls that continue while their run goes on."""
