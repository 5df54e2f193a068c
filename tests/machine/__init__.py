"""Model-based tests of the runtime: random scripts, checked against a reference model."""
