"""Regular expressions with matching time linear in the text, because a model writes the text.

Python's `re` backtracks: `(a+)+$` takes years for a text of 50 characters. The engine here is the one that
checks patterns of JSON Schemas. It has no look-around and no back-references.
"""

from dataclasses import dataclass, field

import jsonschema_rs

MAX_MATCHED_CHARACTERS = 100_000
"""The engine takes up to a microsecond for each character, and blocks the event loop meanwhile."""
_MAX_COMPILED_BYTES = 1 << 18
_OPTIONS = jsonschema_rs.RegexOptions(size_limit=_MAX_COMPILED_BYTES)
_DOT_MATCHES_NEWLINE = "(?s)"


class BadRegex(ValueError):
    """The engine doesn't support the expression; the message says what to write instead."""


@dataclass(frozen=True)
class LinearRegex:
    """An expression that is searched for anywhere in a text."""

    text: str
    _compiled: jsonschema_rs.Validator = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises BadRegex."""
        object.__setattr__(self, "_compiled", _compile(self.text))

    def is_found_in(self, text: str) -> bool:
        # A lone surrogate has no UTF-8; no expression can match it.
        return self._compiled.is_valid(text.encode(errors="replace").decode())


def _compile(expression: str) -> jsonschema_rs.Validator:
    schema = {"type": "string", "pattern": _DOT_MATCHES_NEWLINE + expression}
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=_OPTIONS)
    except ValueError as error:
        raise BadRegex(
            f"{expression!r} isn't a regular expression that can be used: it has to be closed and small,"
            r" without look-around, possessive groups and back-references; write \z for \Z"
        ) from error
