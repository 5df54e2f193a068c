"""Planted bugs, and the trials that find them."""
