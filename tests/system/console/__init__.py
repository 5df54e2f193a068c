"""The web console in a real Chromium, with real servers and a real database."""
