"""Protocols that the runtime needs of other packages, and the types of their arguments."""
