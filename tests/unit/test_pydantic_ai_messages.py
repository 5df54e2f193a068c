"""Our transcript in the types of pydantic-ai: turns, names of tools, media."""

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel

from app.domain.errors import InferenceFailed
from app.domain.ids import CallId, MessageId
from app.domain.threads.messages import (
    Base64Source,
    Block,
    Media,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
    UrlSource,
)
from app.llm.pydantic_ai.messages import history_of, parameters_of
from tests.support.transcripts import ADD, asking, assistant, result, user


def _user(*blocks: Block) -> Message:
    return Message(id=MessageId("u"), role=Role.USER, content=blocks)


def test_messages_between_two_answers_are_one_request() -> None:
    system = Message(id=MessageId("s"), role=Role.SYSTEM, content=(Text("be brief"),))
    calls = [ToolCall(CallId("c1"), "add", {"a": 1}), ToolCall(CallId("c2"), "now", None)]
    first, answer, second = history_of(
        [system, user("hi"), assistant("ok", *calls), result("c1", "1"), result("c2", "noon")],
        TestModel(),
    )
    assert isinstance(first, ModelRequest)
    assert [type(part) for part in first.parts] == [SystemPromptPart, UserPromptPart]
    assert isinstance(answer, ModelResponse)
    assert isinstance(answer.parts[0], TextPart)
    assert [
        (part.tool_name, part.args_as_dict())
        for part in answer.parts
        if isinstance(part, ToolCallPart)
    ] == [("add", {"a": 1}), ("now", {})]
    assert isinstance(second, ModelRequest)
    assert [
        (part.tool_name, part.content, part.tool_call_id)
        for part in second.parts
        if isinstance(part, ToolReturnPart)
    ] == [("add", "1", "c1"), ("now", "noon", "c2")]


def test_an_answer_without_text_is_left_out() -> None:
    assert len(history_of([user("a"), assistant(""), user("b")], TestModel())) == 1


def test_a_user_prompt_comes_before_the_first_answer() -> None:
    system = Message(id=MessageId("s"), role=Role.SYSTEM, content=(Text("a summary"),))
    for before in ([], [system]):
        first, answer, _ = history_of([*before, assistant("as I said"), user("go on")], TestModel())
        assert isinstance(first.parts[-1], UserPromptPart)
        assert isinstance(answer, ModelResponse)


def test_media_go_by_address_or_as_bytes() -> None:
    url = Media("image", UrlSource("https://x/y.png"))
    data = Media("document", Base64Source("application/pdf", "aGk="))
    [request] = history_of([_user(Text("look"), Thinking("no"), url, data)], TestModel())
    [part] = request.parts
    assert isinstance(part, UserPromptPart)
    assert not isinstance(part.content, str)
    words, image, document = part.content
    assert words == "look"
    assert isinstance(image, ImageUrl)
    assert image.url == "https://x/y.png"
    assert isinstance(document, BinaryContent)
    assert (document.data, document.media_type) == (b"hi", "application/pdf")


def test_media_that_are_not_base64_are_refused() -> None:
    with pytest.raises(InferenceFailed) as caught:
        history_of([_user(Media("image", Base64Source("image/png", "not base64!")))], TestModel())
    assert caught.value.kind == "invalid_request"


def test_the_system_prompt_and_the_tools_are_parameters() -> None:
    parameters = parameters_of(asking("hi", tools=[ADD]))
    assert parameters.instruction_parts is not None
    assert [part.content for part in parameters.instruction_parts] == ["You are a test."]
    [tool] = parameters.function_tools
    assert (tool.name, tool.parameters_json_schema) == ("add", ADD.parameters)
