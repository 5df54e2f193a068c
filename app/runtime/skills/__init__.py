"""Skills in a run: `skill_in_use` is its state, `refused_calls` answers calls that the skill doesn't allow."""
