"""The whole HTTP API against its OpenAPI document, and against hostile clients."""
