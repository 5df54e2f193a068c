"""Where tools come from: Python functions of the user, and what a client can do itself.

Every source offers `Tool`s as `runtime/ports.py` defines them. What must hold: an error is a result and
never ends a run; what reaches the model is JSON and bounded; no code of a user's blocks the event loop
or decides when a call counts as over. pydantic is allowed, this is an edge. May import `runtime` and
`domain`.
"""
