"""The result of a call for the model and for programs, from the answer of a server."""

from app.domain.tools.tool_calls import ResultStatus, ToolDescriptor, ToolResult
from app.tools.functions.results import result_of
from app.tools.mcp.client import ServerAnswer
from app.tools.result_limits import MAX_ERROR_CHARACTERS, shortened

NOTHING = "(no output)"


def tool_result(descriptor: ToolDescriptor, answer: ServerAnswer, max_bytes: int) -> ToolResult:
    """Convert an answer. What is too large is cut, and says so."""
    if answer.is_error:
        why = shortened(answer.text or "the server reported an error", MAX_ERROR_CHARACTERS)
        return ToolResult.error(descriptor.name, why)
    is_silent = not answer.text and answer.data is None
    text: str | None = NOTHING if is_silent else answer.text or None
    metadata = {"content": list(answer.parts)} if answer.parts else None
    whole = ToolResult(descriptor.name, ResultStatus.SUCCESS, answer.data, text, metadata=metadata)
    return result_of(descriptor, whole, max_bytes)
