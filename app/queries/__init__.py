"""What only reads: one module per question, no event and no write.

What changes something is in `commands`. Event streams are read in `events/follow`.
"""
