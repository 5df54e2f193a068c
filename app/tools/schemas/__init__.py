"""Checks values against JSON Schema, and defines which schemas clients may send."""
