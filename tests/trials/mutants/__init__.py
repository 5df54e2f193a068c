"""Bugs that were put in on purpose, and the trials that find them."""
