"""Request and response bodies as pydantic models. Unknown fields of a request are refused."""
