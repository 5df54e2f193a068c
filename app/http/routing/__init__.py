"""How frequent requests find their route and its arguments, with little work for each request."""
