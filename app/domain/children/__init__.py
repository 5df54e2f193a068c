"""Child runs, background tasks, and the follow-up jobs between a parent and its child."""
