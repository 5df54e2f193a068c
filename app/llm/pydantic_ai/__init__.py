"""Other providers through pydantic-ai's direct API; its agent loop is not used."""
