"""JSON as a type, its canonical form, and its storable form."""

import hashlib
import json
import json.encoder
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

import msgspec

Json: TypeAlias = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]
JsonObject: TypeAlias = Mapping[str, Any]

_FIRST_WITH_EXPONENT = 1e16
"""From here on Python writes an exponent, and Postgres all digits."""


def _encoder(*, sort_keys: bool, ensure_ascii: bool = False) -> Callable[[Any, int], Iterable[str]]:
    """What `json.JSONEncoder` uses to encode a value. It would make that anew for each value."""
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, separators=(",", ":"), check_circular=False, sort_keys=sort_keys
    )
    made: Callable[[Any, int], Iterable[str]] | None = None
    if make := getattr(json.encoder, "c_make_encoder", None):
        made = make(
            None,
            encoder.default,
            json.encoder.encode_basestring_ascii
            if ensure_ascii
            else json.encoder.encode_basestring,
            None,
            ":",
            ",",
            sort_keys,
            False,
            True,
        )
    return made or (lambda value, _: encoder.iterencode(value))


_pieces = _encoder(sort_keys=False)
_sorted_pieces = _encoder(sort_keys=True)
_canonical_pieces = _encoder(sort_keys=True, ensure_ascii=True)
_decode = msgspec.json.Decoder().decode


def parsed(text: str) -> Any:
    """The value of a JSON text that was stored."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        # The standard library takes several times as long, but also reads numbers beyond a float's range.
        return json.loads(text)


def compact(value: Any) -> str:
    """The shortest JSON text of a value, as it is sent and stored."""
    return "".join(_pieces(value, 0))


def compact_sorted(value: Any) -> str:
    """JSON text with sorted keys: the same bytes before and after Postgres has stored the value."""
    return "".join(_sorted_pieces(value, 0))


def with_sorted_keys(value: Any) -> Any:
    """The value with sorted keys on all levels."""
    if isinstance(value, Mapping):
        return {key: with_sorted_keys(value[key]) for key in sorted(value)}
    if isinstance(value, list | tuple):
        return [with_sorted_keys(item) for item in value]
    return value


def float_as_stored(text: str) -> int | float:
    """A JSON number with a point or an exponent, as it is read back from Postgres."""
    value = float(text)
    if value.is_integer() and abs(value) >= _FIRST_WITH_EXPONENT:
        return int(value)
    return value or 0.0


def canonical(value: Any) -> str:
    """One JSON text per value, for any order of its keys."""
    return "".join(_canonical_pieces(value, 0))


def digest(value: Any) -> str:
    """A hash of a value's canonical text."""
    return "sha256:" + hashlib.sha256(canonical(value).encode()).hexdigest()


def without_none(body: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value. Absent fields are left out of what is stored and sent."""
    return {key: value for key, value in body.items() if value is not None}


def is_unicode(text: str) -> bool:
    """Whether UTF-8 can encode the text: it has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def utf8_size(text: str) -> int:
    """The bytes of a text; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


def storable_text(text: str) -> str:
    """The text with U+FFFD for each U+0000 and lone surrogate, which Postgres can't store."""
    if text.isascii():
        return text.replace("\0", "\ufffd") if "\0" in text else text
    return (
        text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
    )


def storable(value: Any) -> Any:
    """The value with every string made storable."""
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, Mapping):
        return {storable_text(key): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    return value


def as_object(value: Any) -> dict[str, Any] | None:
    """The value if it is a JSON object, else None."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else None
