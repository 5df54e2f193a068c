"""What a start asks of the model's answers: their format, instructions, and the choice of tools."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from app.domain.json_values import JsonObject, as_object
from app.domain.runs.output_specs import OutputSpec, output_from_json, output_to_json

_OUTPUT = "output"
_INSTRUCTIONS = "instructions"
_TOOL_CHOICE = "tool_choice"
_TOOLS = "tools"
NO_TOOL = "none"


class RequestedAnswer(Struct, frozen=True, kw_only=True):
    """None leaves it to the agent. Stored in the run's request, so that it holds after a takeover, too."""

    output: OutputSpec | None = None
    """The format of the final answer, in place of the agent's own."""
    instructions: str | None = None
    """Added to the agent's system prompt."""
    tool_choice: str | None = None
    """`none`, `required`, or `tool:` and a name. The latter two count for the first step only."""
    tools: tuple[str, ...] | None = None
    """The names of the tools that the run has. Others don't exist for it."""

    @property
    def named_tools(self) -> frozenset[str]:
        """The names of tools in the request, which have to exist."""
        chosen = [] if self.forced_tool is None else [self.forced_tool]
        return frozenset([*(self.tools or ()), *chosen])

    @property
    def forced_tool(self) -> str | None:
        return _forced_tool(self.tool_choice)


ANY_ANSWER = RequestedAnswer()


def answer_in_request(answer: RequestedAnswer) -> dict[str, Any]:
    """The entries of a run's request."""
    if answer is ANY_ANSWER:
        return {}
    entries = {
        _OUTPUT: None if answer.output is None else output_to_json(answer.output),
        _INSTRUCTIONS: answer.instructions,
        _TOOL_CHOICE: answer.tool_choice,
        _TOOLS: None if answer.tools is None else list(answer.tools),
    }
    return {key: value for key, value in entries.items() if value is not None}


def output_of(request: JsonObject) -> OutputSpec | None:
    raw = as_object(request.get(_OUTPUT))
    return None if raw is None else output_from_json(raw)


def tools_of(request: JsonObject) -> frozenset[str] | None:
    names = request.get(_TOOLS)
    return None if names is None else frozenset(names)


def instructions_of(request: JsonObject) -> str | None:
    text: str | None = request.get(_INSTRUCTIONS)
    return text


def forced_tool_of(request: Mapping[str, Any]) -> str | None:
    """The name of the tool that the first step has to call."""
    return _forced_tool(request.get(_TOOL_CHOICE))


def _forced_tool(choice: str | None) -> str | None:
    name = (choice or "").removeprefix("tool:")
    return None if not name or name == choice else name


def tool_choice_of(request: Mapping[str, Any], steps: int) -> str | None:
    """`none`, `required`, the name of a tool after `tool:`, or None, after this many steps."""
    choice: str | None = request.get(_TOOL_CHOICE)
    return choice if choice == NO_TOOL or not steps else None
