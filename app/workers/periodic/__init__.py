"""Work that every process repeats: the sweeper, retention, ticket expiry and polling of remote agents."""
