"""The OpenAI-compatible wire: request body, stream parser and options."""
