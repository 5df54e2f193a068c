"""The OpenAPI document of the snapshot: every operation, and each response that it declares."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DOCUMENT: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "snapshots" / "openapi.json").read_text()
)
PROBLEM = "application/problem+json"


@dataclass(frozen=True, slots=True, order=True)
class Declared:
    """One declared response of an operation. A refusal has a code, a success has none."""

    operation: str
    status: int
    code: str = ""

    def __str__(self) -> str:
        return f"{self.operation} {self.status} {self.code}".rstrip()


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


LABELS = [f"{method} {path}" for method, path, _ in operations()]


def declared() -> Iterator[Declared]:
    """All declared responses."""
    for method, path, operation in operations():
        for status, response in operation["responses"].items():
            for code in codes_of(response) or [""]:
                yield Declared(f"{method} {path}", int(status), code)


def declares(method: str, path: str, status: int, code: str) -> bool:
    """Whether the operation of a path declares this refusal; True for a path without an operation."""
    found = [
        operation
        for known_method, known_path, operation in operations()
        if known_method == method and re.fullmatch(re.sub(r"{\w+}", "[^/]+", known_path), path)
    ]
    return not found or any(
        code in codes_of(one["responses"].get(str(status), {})) for one in found
    )


def codes_of(response: dict[str, Any]) -> list[str]:
    problem = response.get("content", {}).get(PROBLEM)
    if problem is None:
        return []
    codes: list[str] = problem["schema"]["allOf"][1]["properties"]["code"]["enum"]
    return codes
