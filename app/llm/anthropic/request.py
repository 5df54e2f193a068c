"""Builds the body of a request to the Messages API from a ModelRequest."""

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.domain.errors import InferenceFailed
from app.domain.inference.failures import FailureKind, failed
from app.domain.structs import replace
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.anthropic.cache_markers import add_markers
from app.llm.anthropic.conversation import AnthropicConversation
from app.llm.anthropic.model_traits import ModelTraits, traits_of
from app.llm.anthropic.options import (
    SAMPLING,
    THINKING_BINDING_BETA,
    Body,
    ConfiguredOptions,
    body_of,
)
from app.llm.anthropic.output_schemas import output_schema
from app.llm.anthropic.provider_data import drops_thoughts
from app.llm.encoded_messages import (
    EncodedConversation,
    EncodedMessages,
    body_with,
    items_json,
)
from app.llm.encoded_turns import encoded_turns
from app.runtime.ports.models import ModelRequest

VERSION_HEADER = "anthropic-version"
_VERSION = "2026-10-21"
_VERSION_WITH_SAMPLING = "2023-06-01"
"""Later versions refuse `temperature`, `top_p` and `top_k`."""
_STALE_THOUGHT = "The block is bound to a different conversation"


class AnthropicRequest(Struct, frozen=True):
    """A body of the Messages API."""

    body: Body
    """Its `messages` are those of the last turn."""
    betas: frozenset[str]
    history: Sequence[bytes] = ()
    """The messages before the last turn, as JSON."""

    def content(self) -> bytes:
        messages = [*self.history, items_json(self.body["messages"])]
        return body_with(self.body, "messages", messages)

    def headers(self) -> dict[str, str]:
        is_sampled = any(name in self.body for name in SAMPLING)
        headers = {VERSION_HEADER: _VERSION_WITH_SAMPLING if is_sampled else _VERSION}
        return (
            {**headers, "anthropic-beta": ",".join(sorted(self.betas))} if self.betas else headers
        )

    def without_stale_thoughts(self) -> "AnthropicRequest":
        """The same request, with thoughts left out that belong to another beginning of the conversation."""
        binding = {"prefix_mismatch_behavior": "drop_block"}
        thinking = {"type": "adaptive", **self.body.get("thinking", {}), "block_binding": binding}
        return replace(
            self,
            body={**self.body, "thinking": thinking},
            betas=self.betas | {THINKING_BINDING_BETA},
        )

    def has_stale_thought(self, failure: InferenceFailed) -> bool:
        """Whether the request was refused because of a thought, and may be sent without it."""
        return (
            failure.kind == FailureKind.INVALID_REQUEST
            and _STALE_THOUGHT in failure.detail
            and self.may_drop_thoughts
        )

    @property
    def may_drop_thoughts(self) -> bool:
        thinking = self.body.get("thinking", {})
        return "block_binding" not in thinking and thinking.get("type", "adaptive") == "adaptive"


def anthropic_request(
    request: ModelRequest,
    model: str,
    address: str,
    parameters: ConfiguredOptions,
    encoded: EncodedMessages | None = None,
) -> AnthropicRequest:
    """The request for this model. Raises `InferenceFailed` if the model can't do what is asked for.

    Turns that `encoded` has aren't encoded again.
    """
    traits = traits_of(model)
    body: Body = {"model": model, "stream": True, **body_of(parameters, request.options, traits)}
    _add_tools(body, request, parameters, traits)
    if request.output is not None:
        schema = output_schema(request.output.schema)
        format_ = {"type": "json_schema", "schema": schema}
        body["output_config"] = {**body.get("output_config", {}), "format": format_}
    cites = parameters.cites_documents and request.output is None
    conversation = AnthropicConversation(traits, address, cites=cites)
    if system := _system(conversation.system(request.messages), request.system_prompt):
        body["system"] = system
    issuer = {"provider": "anthropic", "address": address, "model": model, "cites": cites}
    turns = encoded_turns(
        conversation, request.messages, EncodedConversation(encoded or EncodedMessages(0), issuer)
    )
    body["messages"] = turns.last
    add_markers(body, parameters.cache)
    made = AnthropicRequest(body, parameters.betas, turns.history)
    if traits.binds_thoughts and made.may_drop_thoughts and _has_dropped_thoughts(request):
        return made.without_stale_thoughts()
    return made


def _has_dropped_thoughts(request: ModelRequest) -> bool:
    """Whether the provider left out thoughts of this conversation before. Then it must be asked for it again."""
    return any(drops_thoughts(message.provider_data) for message in request.messages)


def _system(messages: Sequence[str], prompt: str) -> list[Body]:
    texts = ["\n\n".join(messages), prompt]
    return [{"type": "text", "text": text} for text in texts if text]


def _add_tools(
    body: Body, request: ModelRequest, parameters: ConfiguredOptions, traits: ModelTraits
) -> None:
    """Add the tools after those that the options name, and the choice of them."""
    if not request.tools:
        return
    early = {"eager_input_streaming": True} if parameters.streams_arguments_early else {}
    described = [{**_tool(tool), **early} for tool in request.tools]
    body["tools"] = [*body.get("tools", ()), *described]
    choice = _tool_choice(request.tool_choice, body, traits)
    if parameters.parallel_calls is not None and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = not parameters.parallel_calls
    if choice != {"type": "auto"}:
        body["tool_choice"] = choice


def _tool(tool: ToolDescriptor) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": tool.parameters,
    }


def _tool_choice(choice: str | None, body: Body, traits: ModelTraits) -> dict[str, Any]:
    if choice is None:
        return dict(body.get("tool_choice") or {"type": "auto"})
    if choice in ("none", "auto"):
        return {"type": choice}
    if not traits.can_be_forced:
        raise failed(
            FailureKind.INVALID_REQUEST,
            f"the model {body['model']!r} can't be made to call a tool: leave the choice to it",
        )
    if body.get("thinking", {}).get("type") == "enabled":
        raise failed(
            FailureKind.INVALID_REQUEST,
            "a model that thinks with a budget can't be made to call a tool: leave the choice to it, or set"
            " reasoning_effort to none",
        )
    name = choice.removeprefix("tool:")
    return {"type": "any"} if name == choice else {"type": "tool", "name": name}
