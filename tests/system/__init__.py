"""Tests that need programs of the distribution: proxies, a browser, clients in other languages.

`make test-system` runs them; `make test` doesn't collect them. A missing program fails the whole tier, with
a message that names its package. No test is skipped.
"""
