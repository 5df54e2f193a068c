"""Schema migrations: run by `holdfast migrate`, or by alembic with DATABASE_URL set."""
