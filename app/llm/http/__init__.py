"""The HTTP client of our own adapter: fewer wake-ups per streamed chunk than the default one."""
