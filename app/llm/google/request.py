"""Builds the body of a request to the Gemini API from a ModelRequest."""

from typing import Any

from app.domain.inference.failures import FailureKind, failed
from app.domain.json_values import with_sorted_keys
from app.domain.tools.tool_calls import ToolDescriptor
from app.llm.encoded_messages import (
    EncodedConversation,
    EncodedMessages,
    body_with,
    items_json,
)
from app.llm.encoded_turns import encoded_turns
from app.llm.google.conversation import GoogleConversation
from app.llm.google.model_traits import GoogleTraits, traits_of
from app.llm.google.options import Body, GoogleOptions, generation_of
from app.llm.google.schemas import accepted_schema
from app.runtime.ports.models import ModelRequest
from app.runtime.ports.outputs import NativeOutput

_CACHED = "cachedContent"
_OF_CACHE = ("systemInstruction", "tools", "toolConfig")
"""Fields that a cached content has already. The API refuses them beside it."""


def google_request(
    request: ModelRequest,
    model: str,
    address: str,
    parameters: GoogleOptions,
    encoded: EncodedMessages | None = None,
) -> bytes:
    """The body for this model. Raises `InferenceFailed` if the model can't do what is asked for.

    Turns that `encoded` has aren't encoded again.
    """
    traits = traits_of(model)
    _require_possible(request, model, parameters, traits)
    conversation = GoogleConversation(traits, address)
    issuer = {"provider": "google", "address": address, "model": model}
    turns = encoded_turns(
        conversation, request.messages, EncodedConversation(encoded or EncodedMessages(0), issuer)
    )
    body: Body = {**parameters.body, "contents": ()}
    texts = [*conversation.system(request.messages), request.system_prompt]
    if system := [{"text": text} for text in texts if text]:
        body["systemInstruction"] = {"role": "user", "parts": system}
    _add_tools(body, request, parameters, traits)
    generation = generation_of(parameters, request.options, traits)
    if request.output is not None:
        generation |= _format(request.output)
    body["generationConfig"] = generation
    if _CACHED in body:
        body = {name: value for name, value in body.items() if name not in _OF_CACHE}
    return body_with(body, "contents", [*turns.history, items_json(turns.last)])


def _require_possible(
    request: ModelRequest, model: str, parameters: GoogleOptions, traits: GoogleTraits
) -> None:
    if not request.tools:
        return
    detail = None
    if not traits.takes_tools:
        detail = f"the model {model!r} takes no tools: use another model, or an agent without tools"
    elif parameters.native_tools and not traits.combines_tools:
        detail = (
            f"the model {model!r} can't use tools of the agent and native_tools in one request: leave out"
            " one of them"
        )
    elif request.output is not None and not traits.combines_tools:
        detail = f"the model {model!r} can't write structured output in a request with tools"
    if detail is not None:
        raise failed(FailureKind.INVALID_REQUEST, detail)


def _format(output: NativeOutput) -> Body:
    schema = accepted_schema(with_sorted_keys(output.schema))
    return {
        "responseMimeType": "application/json",
        "responseJsonSchema": {**schema, "title": output.name},
    }


def _add_tools(
    body: Body, request: ModelRequest, parameters: GoogleOptions, traits: GoogleTraits
) -> None:
    """Add the tools after those that the options name, and the choice of them."""
    tools = [*parameters.native_tools, *body.get("tools", ())]
    config = dict(body.get("toolConfig") or {})
    if request.tools:
        tools.append({"functionDeclarations": [_tool(tool) for tool in request.tools]})
        if request.tool_choice is not None or "functionCallingConfig" not in config:
            config["functionCallingConfig"] = _tool_choice(request.tool_choice, traits)
    if parameters.native_tools and traits.combines_tools:
        config.setdefault("includeServerSideToolInvocations", True)
    if tools:
        body["tools"] = tools
    if config:
        body["toolConfig"] = config


def _tool(tool: ToolDescriptor) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parametersJsonSchema": accepted_schema(tool.parameters),
    }


def _tool_choice(choice: str | None, traits: GoogleTraits) -> dict[str, Any]:
    match choice:
        case None | "auto":
            return {"mode": "VALIDATED" if traits.validates_calls else "AUTO"}
        case "none":
            return {"mode": "NONE"}
        case "required":
            return {"mode": "ANY"}
        case _:
            return {"mode": "ANY", "allowedFunctionNames": [choice.removeprefix("tool:")]}
