"""Options of an inference and the kinds of failure. Calling a model is in `runtime/inference` and `llm`."""
