"""Child runs and background tasks. Follow-up jobs about them are sent by `storage/queue`."""
