"""Proofs of the runtime's core: random scripts, against a small model of what may be."""
