"""A promise that wasn't kept: which, and where."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
