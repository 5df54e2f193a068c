"""Tests of the reference runtime for its loop, under the names that they have there.

Where Holdfast differs on purpose, the test asserts our behaviour, and its docstring names the reference's.
"""
