"""Who may send requests from a browser: origins of pages, host names, and CORS headers. Keys are checked by
`auth`.
"""
