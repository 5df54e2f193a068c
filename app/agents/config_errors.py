"""Everything that is wrong with an agents file, collected to be told at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from app.domain.errors import ConfigurationError


@dataclass(slots=True)
class ConfigErrors:
    file: Path
    sentences: list[str] = field(default_factory=list)

    def add(self, key: str, sentence: str) -> None:
        """Remember what is wrong at a key; the sentence ends with the remedy."""
        self.sentences.append(f"{self.file}: {key}: {sentence}")

    def raise_any(self) -> None:
        if self.sentences:
            raise ConfigurationError("\n".join(self.sentences))


def did_you_mean(wanted: str, known: Iterable[str]) -> str:
    """What was probably meant, or all that there is."""
    names = list(known)
    close = get_close_matches(wanted, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"
