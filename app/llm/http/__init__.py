"""The HTTP client of our own model adapters. A piece of an answer costs it less than it costs an HTTP library."""
