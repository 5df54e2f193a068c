"""HTTP that all routes share: authentication, errors, headers, cursors and the sending of SSE streams.

The only place that knows status codes and headers. The routes are in `api`. No request holds a database
connection while a client waits.
"""
