"""What a browser is shown first: the page at `/`, and the page about the API with all its assets."""
