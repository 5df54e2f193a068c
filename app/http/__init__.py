"""HTTP that all routes share: authentication, errors, headers, cursors and SSE.

Only this package and `api`, which has the routes, know status codes and headers. A request that waits or
streams holds no database connection.
"""
