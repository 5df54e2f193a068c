"""OpenAI-compatible APIs: request body, stream parser and options."""
