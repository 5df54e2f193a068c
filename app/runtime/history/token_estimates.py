"""How many tokens something takes, roughly: the one place that guesses.

Four characters to a token, four tokens for each message, fifty for what isn't text. Too rough to bill by,
good enough to stay clear of a limit, and the same for every model.
"""

from collections.abc import Iterable

from app.domain.json_values import compact
from app.domain.threads.messages import Message, Summary, Text
from app.domain.tools.tool_calls import ToolDescriptor

CHARACTERS_PER_TOKEN = 4
PER_MESSAGE = 4
PER_OTHER_BLOCK = 50


def of_text(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN


def of_message(message: Message) -> int:
    characters = others = 0
    for block in message.content:
        if isinstance(block, Text | Summary):
            characters += len(block.text)
        else:
            others += 1
    for call in message.tool_calls:
        characters += len(call.name) + len(compact(call.arguments))
    return PER_MESSAGE + characters // CHARACTERS_PER_TOKEN + PER_OTHER_BLOCK * others


def of_tools(tools: Iterable[ToolDescriptor]) -> int:
    return sum(
        (len(tool.name) + len(tool.description) + len(compact(tool.parameters)))
        // CHARACTERS_PER_TOKEN
        for tool in tools
    )
