"""Tool calls, their results, and what is known of a call that a crash interrupted."""
