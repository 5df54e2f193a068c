"""Estimates of tokens: four characters each, with fixed prices for messages and media."""

import pytest

from app.domain.structs import replace
from app.domain.threads.messages import Media, Message, MessageRange, Role, Summary, Text, UrlSource
from app.domain.tools.tool_calls import ToolDescriptor
from app.runtime.history.token_estimates import (
    TOKENS_PER_MESSAGE,
    TOKENS_PER_OTHER_BLOCK,
    of_message,
    of_text,
    of_tools,
)
from app.runtime.history.truncation import (
    MAX_CHARACTERS,
    MAX_LINES,
    TRUNCATE_OVER_TOKENS,
    truncated,
)
from tests.support.logs import call, message

IMAGE = Media("image", UrlSource("https://files.test/cat.png"))


@pytest.mark.parametrize("length, tokens", [(0, 0), (3, 0), (4, 1), (401, 100)])
def test_four_characters_are_a_token(length: int, tokens: int) -> None:
    assert of_text("x" * length) == tokens
    assert of_message(message("m", Role.USER, "x" * length)) == TOKENS_PER_MESSAGE + tokens


def test_a_message_costs_its_text_its_calls_and_its_media() -> None:
    blocks = (Text("x" * 40), IMAGE, Summary("x" * 20, MessageRange(1, 2)), IMAGE)
    whole = replace(message("m", Role.USER), content=blocks)
    assert of_message(whole) == TOKENS_PER_MESSAGE + 15 + 2 * TOKENS_PER_OTHER_BLOCK
    asks = message("m", Role.ASSISTANT, "", call("c1", "pays", {"a": 1}), call("c2", "p", {}))
    assert of_message(asks) == TOKENS_PER_MESSAGE + (4 + 7 + 1 + 2) // 4


def test_a_tool_costs_its_name_description_and_parameters() -> None:
    one = ToolDescriptor(name="pays", description="x" * 40, parameters={"a": 1})
    assert of_tools([one]) == (4 + 40 + 7) // 4
    assert of_tools([one, one]) == 2 * of_tools([one])
    assert of_tools([]) == 0


def result(text: str) -> Message:
    return message("m", Role.TOOL, text, answers="c1")


def test_a_result_is_shortened_when_it_is_long() -> None:
    limit = 4 * (TRUNCATE_OVER_TOKENS - TOKENS_PER_MESSAGE) + 3
    assert truncated(result("x" * limit)) == result("x" * limit)
    cut = truncated(result("x" * (limit + 1))).text
    left_out = limit + 1 - MAX_CHARACTERS
    note = f"\n[{left_out} of {limit + 1} characters are left out here]"
    assert cut == "x" * MAX_CHARACTERS + note
    prompt = message("m", Role.USER, "x" * (limit + 1))
    assert truncated(prompt) is prompt


def test_of_many_lines_the_first_are_kept() -> None:
    lines = "x\n" * 10_000
    shown = "x\n" * MAX_LINES
    assert truncated(result(lines)).text.startswith(f"{shown}\n[{20_000 - len(shown)} of 20000 ")


def test_media_of_a_long_result_stays() -> None:
    long = replace(result(""), content=(Text("x" * 9000), IMAGE))
    assert truncated(long).content[1:] == (IMAGE,)
    many = replace(result(""), content=(IMAGE,) * 100)
    assert truncated(many) is many
