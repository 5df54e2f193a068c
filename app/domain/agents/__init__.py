"""Agents as data: specifications, remote endpoints and what each can do. Resolving them is in `app/agents`."""
