"""The deployment files as a container engine reads them, as far as ours use the formats."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
_VARIABLE = re.compile(r"\$\{(\w+):-([^}]*)\}|\$\{?(\w+)\}?")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One line of a Dockerfile, its continuations joined."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The exec form's JSON, or what a shell would make of the line."""
        words: list[str] = json.loads(self.rest) if self.rest[0] == "[" else shlex.split(self.rest)
        return words


def stages() -> list[list[Instruction]]:
    """The Dockerfile's stages; the last one is the image."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found: list[list[Instruction]] = []
    for line in "\n".join(lines).replace("\\\n", "").splitlines():
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, rest.strip()))
    return found


def image_environment() -> dict[str, str]:
    """What the image sets, but for where it finds its programs."""
    pairs = [one.words for one in stages()[-1] if one.name == "ENV"]
    values = dict(word.split("=", 1) for words in pairs for word in words)
    return {name: value for name, value in values.items() if name != "PATH"}


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return found


def services(environ: Mapping[str, str]) -> dict[str, Any]:
    """The services of docker-compose.yml, with variables from such an environment."""

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
