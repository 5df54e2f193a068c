"""Converts the return value of a function to a result that can be stored, shown and read by a model."""

import json
from typing import Any

from pydantic_core import to_jsonable_python

from app.domain.errors import ConfigurationError
from app.domain.json_values import Json, JsonObject, as_object, compact, storable, storable_text
from app.domain.structs import replace
from app.domain.tools.tool_calls import ResultStatus, SuspensionRequest, ToolDescriptor, ToolResult
from app.tools.functions.truncated_copy import TruncatedCopy
from app.tools.result_limits import MAX_ERROR_CHARACTERS, cut_to_bytes, shortened
from app.tools.schemas.validate import build_validator


def result_of(descriptor: ToolDescriptor, returned: Any, max_bytes: int) -> ToolResult:
    """Convert a returned value to the call's result. A value that isn't JSON becomes an error."""
    if isinstance(returned, SuspensionRequest):
        return _suspended(descriptor, returned)
    try:
        if isinstance(returned, ToolResult):
            return _checked(descriptor, returned, max_bytes)
        return ToolResult.success(descriptor.name, _json_within(max_bytes, returned))
    except (ValueError, RecursionError) as error:
        return tool_failed(
            descriptor.name,
            f"the tool returned a value of type {type(returned).__name__} that isn't JSON ({error})",
        )


def tool_failed(tool_name: str, why: str) -> ToolResult:
    return ToolResult.error(tool_name, shortened(f"Execution failed: {why}", MAX_ERROR_CHARACTERS))


def _suspended(descriptor: ToolDescriptor, request: SuspensionRequest) -> ToolResult:
    if request.response_schema is None:
        request = replace(request, response_schema=descriptor.response_schema)
    else:
        try:
            build_validator(request.response_schema)
        except ConfigurationError as error:
            return tool_failed(descriptor.name, f"the tool asked with a response_schema: {error}")
    return ToolResult.suspended(descriptor.name, request)


def _checked(descriptor: ToolDescriptor, result: ToolResult, max_bytes: int) -> ToolResult:
    message = result.message
    if result.status is ResultStatus.PENDING:
        request = result.suspension or SuspensionRequest(
            message or f"Tool '{descriptor.name}' suspended: awaiting decision"
        )
        return _suspended(descriptor, request)
    return replace(
        result,
        tool_name=descriptor.name,
        data=_json_within(max_bytes, result.data),
        message=None if message is None else _text_within(max_bytes, message),
        suspension=None,
        metadata=_object_within(max_bytes, result.metadata),
    )


def _json_within(max_bytes: int, value: Any) -> Json:
    """The value as JSON. If it is too large, the beginning of its text."""
    beginning = TruncatedCopy(max_bytes)
    data = to_jsonable_python(beginning.copy_of(value), inf_nan_mode="null")
    if not beginning.is_complete:
        text = data if isinstance(data, str) else compact(data)
        return cut_to_bytes(storable_text(text), max_bytes, is_whole=False)
    # Made storable here, so that the model reads the same value now and later from the log.
    data = storable(data)
    if isinstance(data, str):
        return cut_to_bytes(data, max_bytes)
    text = compact(data)
    if "NaN" in text or "Infinity" in text:
        # JSON has no NaN and no infinity, but models keep them through `inf_nan_mode`.
        data = json.loads(text, parse_constant=lambda _: None)
    fitting = cut_to_bytes(text, max_bytes)
    return data if fitting is text else fitting


def _object_within(max_bytes: int, value: JsonObject | None) -> JsonObject | None:
    if not value:
        return None
    body = as_object(_json_within(max_bytes, dict(value)))
    if body is None:
        raise ValueError(f"its metadata has more than {max_bytes} bytes")
    return body


def _text_within(max_bytes: int, text: str) -> str:
    return cut_to_bytes(str(storable(text)), max_bytes)
