"""Files of runs: those that models read, and those that tools and remote agents save."""
