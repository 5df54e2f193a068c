"""Checking values against JSON Schema, and which schemas clients may send."""
