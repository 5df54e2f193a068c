"""The routes under /v1, one module per resource: a request becomes one command or one query.

Authentication, error responses, SSE transport and request limits are shared by all routes and are in
`http`. What a request changes is in `commands`; what it reads is in `queries`.
"""
