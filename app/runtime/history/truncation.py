"""Long results of tools, shortened wherever a model reads them again. The log keeps them whole."""

from dataclasses import replace

from app.domain.threads.messages import Message, Role, Text
from app.runtime.history import token_estimates

TRUNCATE_OVER_CHARACTERS = 2048
"""Tokens from which on a result is shortened."""
MAX_CHARACTERS = 1600
MAX_LINES = 24


def truncated(message: Message) -> Message:
    """The message, or if it is a long result, its beginning and how much of it is left out."""
    if (
        message.role is not Role.TOOL
        or token_estimates.of_message(message) <= TRUNCATE_OVER_CHARACTERS
    ):
        return message
    text = message.text
    beginning = "".join(text[:MAX_CHARACTERS].splitlines(keepends=True)[:MAX_LINES])
    left_out = len(text) - len(beginning)
    if not left_out:
        return message
    note = f"\n[{left_out} of {len(text)} characters are left out here]"
    others = tuple(block for block in message.content if not isinstance(block, Text))
    return replace(message, content=(Text(beginning + note), *others))
