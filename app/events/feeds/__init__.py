"""Feeds of a tenant that all their followers in this process share: one query and one encoding serves all of them."""
