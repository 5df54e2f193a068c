"""Tools: Python functions of the user, tools of the client, delegates and background tools.

Each implements `Tool` of `runtime/ports/tools.py`. An error is a result and never ends a run. A result is JSON of
limited size. User code never blocks the event loop. `runtime/tool_calls` decides when a call is executed.
"""
