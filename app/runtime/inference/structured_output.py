"""Structured output: asks for the final answer in its format, reads it, and asks the model to correct it.

native     the provider gets the schema
tool       the model calls a tool whose arguments are the answer; the log has them as text
prompted   the system prompt has the schema
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct

from app.domain.ids import MessageId
from app.domain.inference.options import (
    NO_OPTIONS,
    InferenceOptions,
    models_in_order,
    options_from_json,
)
from app.domain.json_tokens import has_more_tokens
from app.domain.json_values import (
    JsonObject,
    as_object,
    compact_sorted,
    float_as_stored,
    storable,
    with_sorted_keys,
)
from app.domain.runs.output_specs import OUTPUT_INVALID, OutputMode
from app.domain.runs.terminations import Failed
from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text, Visibility
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.active_run import ActiveRun
from app.runtime.agent import ResolvedAgent
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.outputs import NativeOutput, NativeOutputModel, OutputFormat
from app.runtime.state import Change, ChangeBatch, StateKey

MAX_CHARACTERS = 1_000_000
MAX_TOKENS = 100_000
"""Brackets, commas and strings of a final answer."""
_MAX_BEGINNINGS = 10
"""Places at which an answer with words around its JSON is tried."""
_NOT_AN_OBJECT = "it isn't a JSON object"


class Corrections(Struct, frozen=True):
    """How often the model was asked to correct its answer, and the message that asked last."""

    used: int = 0
    message_id: str = ""


_CORRECTIONS: StateKey[Corrections, Corrections] = StateKey(
    "__runtime.output_corrections",
    Corrections,
    encode=lambda made: {"used": made.used, "message_id": made.message_id},
    decode=lambda raw: Corrections(raw["used"], raw["message_id"]),
)


def overrides_of(run: ActiveRun) -> InferenceOptions:
    """The options that the run's start overrides."""
    stored = run.record.request.get("overrides")
    return NO_OPTIONS if stored is None else options_from_json(stored)


# --- the request ----------------------------------------------------------------------------------


def mode_of(run: ActiveRun, output: OutputFormat) -> OutputMode:
    """How the agent's model and its fallbacks are asked for the final answer; never `auto`."""
    if output.spec.mode is not OutputMode.AUTO:
        return output.spec.mode
    agent = run.agent
    model, spec = agent.model, agent.spec
    options = spec.options.overridden_by(overrides_of(run))
    is_native = isinstance(model, NativeOutputModel) and model.has_native_output(
        with_tools=bool(agent.tools), models=models_in_order(model.name, options, spec.retry)
    )
    return OutputMode.NATIVE if is_native else OutputMode.TOOL


def answer_tool(run: ActiveRun) -> str | None:
    """The name of the tool that the model calls with its answer, if it answers so."""
    output = run.agent.output
    if output is None or mode_of(run, output) is not OutputMode.TOOL:
        return None
    name = output.spec.name
    while name in run.agent.tools:
        name += "_"
    return name


def with_output_format(run: ActiveRun, request: ModelRequest) -> ModelRequest:
    """The request, asking for the agent's output format. A correction offers no tools of the agent."""
    output = run.agent.output
    if output is None:
        return request
    spec, is_correction = output.spec, _is_correction(run)
    tool_choice = "none" if is_correction and request.tools else request.tool_choice
    match mode_of(run, output):
        case OutputMode.NATIVE:
            native = NativeOutput(spec.name, spec.schema, spec.strict)
            return replace(request, output=native, tool_choice=tool_choice)
        case OutputMode.TOOL:
            name = answer_tool(run) or spec.name
            descriptor = ToolDescriptor(
                name=name,
                description="Give your final answer. The arguments are the answer.",
                parameters=with_sorted_keys(spec.schema),
            )
            offered = [] if is_correction else request.tools
            return replace(
                request,
                tools=_with_answer_tool(offered, descriptor, run.agent),
                system_prompt=_joined(
                    request.system_prompt,
                    f"Give your final answer by a call of the tool {name}, alone and once.",
                ),
                tool_choice=None if is_correction else request.tool_choice,
            )
        case _:
            sentence = (
                "Write your final answer as one JSON object that fits this JSON Schema, and nothing else:\n"
                + compact_sorted(spec.schema)
            )
            return replace(
                request,
                system_prompt=_joined(request.system_prompt, sentence),
                tool_choice=tool_choice,
            )


def _with_answer_tool(
    offered: Sequence[ToolDescriptor], answer: ToolDescriptor, agent: ResolvedAgent
) -> list[ToolDescriptor]:
    """The tools with the answer tool, sorted by name. Before tools that are revealed later, it comes first."""
    if agent.tool_search is not None:
        return [answer, *offered]
    return sorted([*offered, answer], key=lambda tool: tool.name)


def _joined(system_prompt: str, sentence: str) -> str:
    return f"{system_prompt}\n\n{sentence}" if system_prompt else sentence


def _is_correction(run: ActiveRun) -> bool:
    run.state.register([_CORRECTIONS])
    asked = run.state.snapshot.get(_CORRECTIONS).message_id
    return bool(asked and run.log and run.log[-1].message.id == asked)


# --- the answer -----------------------------------------------------------------------------------


def answered(output: OutputFormat, text: str) -> tuple[JsonObject | None, str]:
    """The final answer in this text, or None and what is wrong with it."""
    if len(text) > MAX_CHARACTERS or has_more_tokens(text, MAX_TOKENS):
        return None, "it is too large"
    problem = _NOT_AN_OBJECT
    for value in _objects_in(text):
        wrong = output.problem(value)
        if wrong is None:
            return value, ""
        problem = wrong if problem is _NOT_AN_OBJECT else problem
    return None, problem


def _objects_in(text: str) -> Iterator[JsonObject]:
    """The JSON objects that the text is, or ends with. Models write words and code fences around them."""
    decoder = json.JSONDecoder(parse_float=float_as_stored)
    for start in _beginnings(text):
        try:
            raw, end = decoder.raw_decode(text, start)
            value = as_object(storable(raw))
            json.dumps(value, allow_nan=False)
        except (ValueError, RecursionError):
            continue
        if value is not None and text[end:].strip() in ("", "```"):
            yield value


def _beginnings(text: str) -> Iterator[int]:
    first = at = text.find("{")
    if first < 0:
        return
    yield first
    end = len(text)
    for _ in range(_MAX_BEGINNINGS):
        at = text.rfind("\n{", first, end) + 1
        if at <= first:
            return
        yield at
        end = at - 1


def judged(run: ActiveRun, answer: Message) -> Message | Failed | None:
    """None if the answer fits, or isn't the last one. Else a message that asks for a correction, or the
    failure of the run when all retries are used."""
    output = run.agent.output
    if output is None or run.unread_inputs or run.open_tasks:
        return None
    value, problem = answered(output, answer.text)
    if value is not None:
        return None
    run.state.register([_CORRECTIONS])
    used = run.state.snapshot.get(_CORRECTIONS).used
    if used >= output.spec.retries:
        return invalid(problem, answer.text)
    correction = Message(
        id=MessageId(run.new_message_id()),
        role=Role.USER,
        content=(
            Text(
                f"Your answer doesn't fit its JSON Schema: {problem}. Answer again with a JSON object that fits it."
            ),
        ),
        visibility=Visibility.INTERNAL,
    )
    made: Any = Corrections(used + 1, correction.id)
    run.change_state(ChangeBatch([Change(_CORRECTIONS, made)]))
    return correction


def invalid(problem: str, text: str) -> Failed:
    shown = text if len(text) <= 500 else f"{text[:500]}…"
    return Failed(
        OUTPUT_INVALID, f"The answer doesn't fit its JSON Schema: {problem}. It was: {shown}"
    )
