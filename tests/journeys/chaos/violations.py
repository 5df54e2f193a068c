"""A violated guarantee: the rule and the evidence."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"
