"""Tools: Python functions of the user, tools of the client, delegates and background tools.

Each satisfies `Tool` of `runtime/ports.py`. An error is a result and never ends a run; a result is JSON and
bounded; user code never blocks the event loop. When a call is made is decided in `runtime/tool_calls`.
"""
