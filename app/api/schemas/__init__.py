"""The shapes of requests and answers, as pydantic models; what isn't known in a request is refused."""
