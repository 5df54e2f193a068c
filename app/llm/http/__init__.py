"""The HTTP client of our own adapter. It wakes the event loop less often per streamed chunk than the default."""
