"""The composition root: makes of the settings a house that stands, and takes it down again.

Nobody else knows all parts. `house` puts them together; what they are made of comes
from `agents` and `connections`, what they do by themselves goes on in `background`.
"""
