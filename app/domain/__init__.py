"""What is true: the nouns of the service and the rules between them.

Only frozen dataclasses, enums and pure functions live here, made of the standard library. No I/O, no
clock, no asyncio, no pydantic: whoever needs the time or a fresh id gets it as an argument. Everything
else may import this package; it imports nothing of ours.
"""
