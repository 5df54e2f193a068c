"""Parses Dockerfile and docker-compose.yml, as far as our files use the formats."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}|\$\{?(\w+)(?::\?[^}]*)?\}?")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a Dockerfile, its continuations joined."""

    name: str
    arguments: str

    @property
    def words(self) -> list[str]:
        """The words of the exec form's JSON, or of the shell form."""
        words: list[str] = (
            json.loads(self.arguments) if self.arguments[0] == "[" else shlex.split(self.arguments)
        )
        return words


def stages() -> list[list[Instruction]]:
    """The Dockerfile's stages; the last one is the image."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: list[list[Instruction]] = []
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, arguments.strip()))
    return found


def image_environment() -> dict[str, str]:
    """The environment of the image without PATH."""
    pairs = [one.words for one in stages()[-1] if one.name == "ENV"]
    values = dict(word.split("=", 1) for words in pairs for word in words)
    return {name: value for name, value in values.items() if name != "PATH"}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def services(environ: Mapping[str, str]) -> dict[str, Any]:
    """The services of docker-compose.yml, with variables from such an environment. Raises KeyError for a
    variable that must be set and isn't."""

    def value_of(match: re.Match[str]) -> str:
        name, default, plain = match.groups()
        return environ.get(name) or default if name else environ[plain]

    def filled(value: Any) -> Any:
        match value:
            case str():
                return _VARIABLE.sub(value_of, value)
            case list():
                return [filled(item) for item in value]
            case dict():
                return {key: filled(item) for key, item in value.items()}
            case _:
                return value

    found: dict[str, Any] = filled(compose()["services"])
    return found
