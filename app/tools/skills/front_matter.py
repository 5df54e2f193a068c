"""The beginning of a `SKILL.md`: YAML between two lines of `---`, and what the format says about its keys."""

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from app.domain.rules.globs import BadGlob, Glob
from app.domain.suggestions import did_you_mean

MAX_DESCRIPTION = 1024
MAX_OTHER_TEXT = 500
MAX_ENTRIES = 100
"""Of `metadata`, and of `allowed-tools`."""
_NAME = re.compile(r"(?=.{1,64}$)[a-z0-9]+(-[a-z0-9]+)*")
_KEYS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
MAX_DEPTH = 5
MAX_CHARACTERS = 10_000
"""Of the whole front matter: YAML is slow to read."""
_FENCE = "---"
_FIRST_LINE = 2
"""Of the YAML, after the fence."""


class BadSkill(Exception):
    """The skill can't be used; `line` is the place in `SKILL.md`, if there is one."""

    def __init__(self, sentence: str, line: int | None = None) -> None:
        super().__init__(sentence)
        self.line = line


class FrontMatter(Struct, frozen=True):
    name: str
    description: str
    license: str | None
    metadata: Mapping[str, str]
    allowed_tools: tuple[str, ...] | None
    lines: Mapping[str, int]
    """The lines of the keys in the file."""


def read_skill_text(text: str) -> tuple[FrontMatter, str]:
    """The front matter and the instructions below it. Raises BadSkill with the line."""
    lines = text.split("\n")
    if lines[0].strip() != _FENCE:
        raise BadSkill("must begin with a line ---, then name and description, then ---", 1)
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() == _FENCE), None)
    if end is None:
        raise BadSkill("its front matter has no end; add a line --- after it", len(lines))
    front = "\n".join(lines[1:end])
    if len(front) > MAX_CHARACTERS:
        raise BadSkill(
            f"its front matter has more than {MAX_CHARACTERS:,} characters; shorten it", _FIRST_LINE
        )
    values, places = _mapping(front)
    for key in values:
        if key not in _KEYS:
            raise BadSkill(f"unknown key {key!r}; {did_you_mean(key, _KEYS)}", places[key])
    return _Keys(values, places).checked(), "\n".join(lines[end + 1 :]).strip()


def _mapping(text: str) -> tuple[dict[str, Any], dict[str, int]]:
    """The keys with their values, and with their lines in the file."""
    # Imported here, because servers without skills don't need it.
    yaml: Any = import_module("yaml")
    try:
        _check_events(yaml, text)
        node = yaml.compose(text, yaml.SafeLoader)
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or "it can't be read"
        line = _FIRST_LINE if mark is None else mark.line + _FIRST_LINE
        raise BadSkill(f"isn't YAML: {problem}; correct it there", line) from error
    if not isinstance(values, dict):
        raise BadSkill(
            "its front matter must have keys; write name: … and description: …", _FIRST_LINE
        )
    places: dict[str, int] = {}
    for key, _ in node.value:
        line = key.start_mark.line + _FIRST_LINE
        if places.setdefault(str(key.value), line) != line:
            raise BadSkill(f"the key {key.value!r} is there twice; remove one of them", line)
    return {str(key): value for key, value in values.items()}, places


def _check_events(yaml: Any, text: str) -> None:
    """Refuse what makes a short text large or slow to read: aliases, and tables in tables."""
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        line = event.start_mark.line + _FIRST_LINE
        if isinstance(event, yaml.AliasEvent):
            raise BadSkill("its front matter has an alias (*); write the value out", line)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise BadSkill("its front matter has too many lists in lists; remove some", line)


class _Keys(Struct, frozen=True):
    """The keys of a front matter with their lines."""

    values: Mapping[str, Any]
    lines: Mapping[str, int]

    def checked(self) -> FrontMatter:
        name = self._required_text("name", 64)
        if not _NAME.fullmatch(name):
            raise BadSkill(
                "name must have 1 to 64 of a-z 0-9, with single - between; rename it",
                self.lines["name"],
            )
        self._text("compatibility", MAX_OTHER_TEXT)
        return FrontMatter(
            name,
            self._required_text("description", MAX_DESCRIPTION),
            self._text("license", MAX_OTHER_TEXT),
            self._metadata(),
            self._allowed_tools(),
            self.lines,
        )

    def _required_text(self, key: str, most: int) -> str:
        found = self._text(key, most)
        if found is None:
            raise BadSkill(
                f"{key} is missing; add {key}: … to the front matter",
                self.lines.get(key, _FIRST_LINE),
            )
        return found

    def _text(self, key: str, most: int) -> str | None:
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not 0 < len(value.strip()) <= most:
            raise BadSkill(
                f"{key} must be a text of 1 to {most} characters; correct it, or write it in quotes",
                self.lines[key],
            )
        return value.strip()

    def _metadata(self) -> Mapping[str, str]:
        metadata = self.values.get("metadata") or {}
        if not isinstance(metadata, dict) or len(metadata) > MAX_ENTRIES:
            raise BadSkill(
                f"metadata must be a table with at most {MAX_ENTRIES} keys; correct it",
                self.lines["metadata"],
            )
        return {str(key): str(value) for key, value in metadata.items()}

    def _allowed_tools(self) -> tuple[str, ...] | None:
        """Names and globs, as a list or as one text with spaces between."""
        value = self.values.get("allowed-tools")
        if value is None:
            return None
        line = self.lines["allowed-tools"]
        names = re.findall(r"[^\s,]+", value) if isinstance(value, str) else value
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise BadSkill(
                "allowed-tools must be names of tools with spaces between; correct it", line
            )
        if not 0 < len(names) <= MAX_ENTRIES:
            raise BadSkill(
                f"allowed-tools must name 1 to {MAX_ENTRIES} tools; correct or remove it", line
            )
        for name in names:
            try:
                Glob(name)
            except BadGlob as error:
                raise BadSkill(f"allowed-tools: {error}; correct it", line) from error
        return tuple(names)
