"""Connections, pools, errors and notifications of Postgres. Statements about our tables are beside it."""
