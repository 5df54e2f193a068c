"""Cuts long texts of an event, for clients that show a list of events and read one of them whole."""

import json
from typing import Any

from app.domain.json_values import compact

MAX_CUTS = 50
"""Texts of one event that are cut. Later ones stay whole."""


def cut_texts(event: bytes, max_bytes: int | None) -> bytes:
    """The event's JSON with texts of at most `max_bytes`. `cut` has the JSON Pointers of those that were cut."""
    if max_bytes is None or len(event) <= max_bytes:
        return event
    cuts: list[str] = []
    shortened = _cut(json.loads(event), max_bytes, "", cuts)
    return compact({**shortened, "cut": cuts}).encode() if cuts else event


def _cut(value: Any, max_bytes: int, pointer: str, cuts: list[str]) -> Any:
    if isinstance(value, str):
        encoded = value.encode()
        if len(encoded) <= max_bytes or len(cuts) == MAX_CUTS:
            return value
        cuts.append(pointer)
        return encoded[:max_bytes].decode(errors="ignore")
    if isinstance(value, dict):
        return {
            key: _cut(item, max_bytes, f"{pointer}/{_escaped(key)}", cuts)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [
            _cut(item, max_bytes, f"{pointer}/{index}", cuts) for index, item in enumerate(value)
        ]
    return value


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
