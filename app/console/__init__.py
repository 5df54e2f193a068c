"""The web console: an HTML shell, the files of a small JavaScript application, and sign-in.

The application is in `web` and is built into `static`. It is a client like any other and uses only /v1. So
this package imports only `http` and what is below it.
"""
