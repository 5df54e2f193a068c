"""Regular expressions whose matching time grows linearly with the text that a model writes.

Python's `re` backtracks: `(a+)+$` takes years for a text of 50 characters. The engine here is the one that
checks patterns of JSON Schemas. It has no look-around and no back-references.
"""

from dataclasses import dataclass, field

import jsonschema_rs

MAX_MATCHED_CHARACTERS = 100_000
"""A step of the engine takes up to a microsecond for each character, and nothing else runs meanwhile."""
_OPTIONS = jsonschema_rs.RegexOptions(size_limit=1 << 18)
_DOT_MATCHES_NEWLINE = "(?s)"


class BadRegex(ValueError):
    """The engine doesn't have such an expression; the message says what to write instead."""


@dataclass(frozen=True)
class LinearRegex:
    """An expression that is searched for anywhere in a text."""

    text: str
    _compiled: jsonschema_rs.Validator = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raises BadRegex."""
        object.__setattr__(self, "_compiled", _compile(self.text))

    def is_found_in(self, text: str) -> bool:
        # Half of a surrogate pair has no UTF-8; the expression can't name it.
        return self._compiled.is_valid(text.encode(errors="replace").decode())


def _compile(expression: str) -> jsonschema_rs.Validator:
    schema = {"type": "string", "pattern": _DOT_MATCHES_NEWLINE + expression}
    try:
        return jsonschema_rs.validator_for(schema, pattern_options=_OPTIONS, offline=True)
    except ValueError as error:
        raise BadRegex(
            f"{expression!r} isn't a regular expression that can be used: it has to be closed and small,"
            r" without look-around, possessive groups and back-references; write \z for \Z"
        ) from error
