"""JSON as a type, its canonical form, and the characters that no store can keep."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

Json: TypeAlias = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
JsonObject: TypeAlias = Mapping[str, Any]

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False)


def compact(value: Any) -> str:
    """The shortest text of a value; what is sent and stored."""
    return _encoder.encode(value)


def canonical(value: Any) -> str:
    """One text per value, whatever order its keys came in."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"), sort_keys=True)


def digest(value: Any) -> str:
    """A name for a value's content, to quote it without repeating it."""
    return "sha256:" + hashlib.sha256(canonical(value).encode()).hexdigest()


def is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, which UTF-8 can't encode."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable_text(text: str) -> str:
    """Text without U+0000 and lone surrogates, which Postgres can't keep; each becomes U+FFFD."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


def storable(value: Any) -> Any:
    """The same value with every string in it storable."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, Mapping):
        return {storable_text(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def as_object(value: Any) -> dict[str, Any] | None:
    """The value when it is a JSON object, otherwise nothing."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None
