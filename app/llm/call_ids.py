"""Ids for calls of tools to which a provider gave none."""

from app.clock import new_id


def new_call_id() -> str:
    return f"call_{new_id()}"
