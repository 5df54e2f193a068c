"""What helps a client to correct an error: the page about its code, and the names that a body may have. The
responses themselves are written by `errors`.
"""
