"""A model that plays a script: for the demo and for tests. It calls no provider."""
