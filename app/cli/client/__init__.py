"""Commands that talk to a server over HTTP. Commands that run a server are in `cli/server`."""
