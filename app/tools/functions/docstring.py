"""Reads the descriptions of a function and its parameters from a docstring in Google's or Numpy's layout."""

import inspect
import re
from typing import Any

_PARAMETERS = frozenset({"args", "arguments", "parameters", "params"})
_OTHER_SECTIONS = frozenset(
    {"returns", "return", "yields", "raises", "example", "examples", "note", "notes", "see also"}
)
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?")


def read_docstring(function: Any) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the description of each parameter."""
    lines = (inspect.getdoc(function) or "").splitlines()
    sections = [(at, header) for at, line in enumerate(lines) if (header := _header(lines, at))]
    end = sections[0][0] if sections else len(lines)
    described: dict[str, str] = {}
    for position, (at, header) in enumerate(sections):
        if header in _PARAMETERS:
            stop = sections[position + 1][0] if position + 1 < len(sections) else len(lines)
            described |= _entries(lines[at + 1 : stop])
    return "\n".join(lines[:end]).strip(), described


def _header(lines: list[str], at: int) -> str | None:
    """The name of the section that starts here: `Args:`, or `Parameters` over a line of dashes."""
    name = lines[at].removesuffix(":").lower()
    if name not in _PARAMETERS | _OTHER_SECTIONS:
        return None
    is_google = lines[at].endswith(":")
    return name if is_google or _is_underline(lines, at + 1) else None


def _is_underline(lines: list[str], at: int) -> bool:
    return at < len(lines) and re.fullmatch(r"-{3,}\s*", lines[at]) is not None


def _entries(body: list[str]) -> dict[str, str]:
    """The entries of a section: one per line of the least indentation. Deeper lines continue it."""
    is_numpy = _is_underline(body, 0)
    lines = [line for line in body[is_numpy:] if line.strip()]
    indent = min((_indent(line) for line in lines), default=0)
    pattern = _NUMPY_ENTRY if is_numpy else _GOOGLE_ENTRY
    texts: dict[str, list[str]] = {}
    name = None
    for line in lines:
        if _indent(line) == indent:
            entry = pattern.fullmatch(line.strip())
            name = entry[1] if entry else None
            if entry and name:
                texts[name] = [] if is_numpy else [entry[2]]
        elif name is not None:
            texts[name].append(line.strip())
    return {name: text for name, words in texts.items() if (text := " ".join(words).strip())}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
