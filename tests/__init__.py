"""Every promise of the service as a test: pure rules, contracts, real Postgres, whole journeys."""
