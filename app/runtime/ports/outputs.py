"""Structured output: its format, and models whose providers write it themselves."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from msgspec import Struct

from app.domain.json_values import JsonObject
from app.domain.runs.output_specs import OutputSpec


class OutputFormat(Protocol):
    @property
    def spec(self) -> OutputSpec: ...

    def problem(self, value: JsonObject) -> str | None:
        """Return what is wrong with a final answer, or None if it fits the schema."""


class NativeOutput(Struct, frozen=True):
    """The format that the provider itself is asked for."""

    name: str
    schema: JsonObject
    strict: bool


@runtime_checkable
class NativeOutputModel(Protocol):
    """A model that can say whether its provider writes structured output."""

    def has_native_output(self, *, with_tools: bool, models: Sequence[str] = ()) -> bool:
        """`models` are the provider's names of those that may answer; without them it is this one."""
