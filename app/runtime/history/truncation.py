"""Shortens long tool results in the model's view. The log keeps them whole."""

from app.domain.structs import replace
from app.domain.threads.messages import Message, Role, Text
from app.runtime.history import token_estimates

TRUNCATE_OVER_TOKENS = 2048
"""Longer results are shortened."""
MAX_CHARACTERS = 1600
MAX_LINES = 24


def truncated(message: Message) -> Message:
    """The message; a long tool result is reduced to its beginning and a note about the rest."""
    if message.role is not Role.TOOL or token_estimates.of_message(message) <= TRUNCATE_OVER_TOKENS:
        return message
    text = message.text
    beginning = "".join(text[:MAX_CHARACTERS].splitlines(keepends=True)[:MAX_LINES])
    left_out = len(text) - len(beginning)
    if not left_out:
        return message
    note = f"\n[{left_out} of {len(text)} characters are left out here]"
    others = tuple(block for block in message.content if not isinstance(block, Text))
    return replace(message, content=(Text(beginning + note), *others))
