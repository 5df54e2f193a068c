"""Commands that run a server, a worker or a migration. Commands that talk to one are in `cli/client`."""
