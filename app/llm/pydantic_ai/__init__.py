"""Other providers through pydantic-ai's direct API. Its agent loop is not used."""
