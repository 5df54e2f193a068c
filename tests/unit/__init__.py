"""Pure rules and single parts, without a database and without a network."""
