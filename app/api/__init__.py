"""Our own face: REST and SSE under /v1, a module per resource.

Routes turn a request into one command or query and its answer into JSON; they decide nothing. May
import `transport`, `dispatch`, `control`, `events` and `domain`; never a table.
"""
