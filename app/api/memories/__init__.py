"""Routes of memories: what agents keep across runs, seen, changed, exported and erased by people."""
