"""Each part against the real thing below it: Postgres, processes, sockets."""
