"""Sessions of the web console: signed cookies, each bound to one API key. `auth` looks the key up on every request."""
