"""What needs programs from the distribution: proxies, a browser, clients in other languages.

A tier of its own, `make test-system`; `make test` neither collects nor needs it. A program that is
missing is named with its package, and fails the tier: nothing in here is ever skipped.
"""
