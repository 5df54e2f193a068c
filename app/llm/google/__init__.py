"""Google's Gemini API: request body, stream parser, and what its models can do. It needs no SDK."""
