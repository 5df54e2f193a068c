"""Shared parts of tests: stand-ins, checkers and processes."""
