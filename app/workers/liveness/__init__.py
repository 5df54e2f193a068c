"""What protects against blocked event loops, database outages and runs that kill their worker."""
