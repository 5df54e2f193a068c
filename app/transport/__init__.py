"""HTTP plumbing that all faces share: who is asking, how refusals look, how streams are sent.

The only place that knows HTTP statuses, headers and the frame of an SSE stream. May import `dispatch`
and everything below; holds no database connection while a client waits.
"""
