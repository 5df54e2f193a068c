"""Collects everything that is wrong with an agents file, to report it at once."""

from dataclasses import dataclass, field
from pathlib import Path

from app.domain.errors import ConfigurationError


@dataclass(slots=True)
class ConfigErrors:
    file: Path
    sentences: list[str] = field(default_factory=list)

    def add(self, key: str, sentence: str) -> None:
        """Add a problem of a key; its sentence ends with the remedy."""
        self.sentences.append(f"{self.file}: {key}: {sentence}")

    def raise_any(self) -> None:
        if self.sentences:
            raise ConfigurationError("\n".join(self.sentences))
