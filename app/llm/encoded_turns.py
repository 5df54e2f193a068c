"""Encodes a transcript as turns: an answer, and what stands between it and the next one.

Providers whose wire joins the messages between two answers encode each turn by itself. All turns but the last
one are taken from the encoded messages of earlier requests.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from app.domain.threads.messages import Message
from app.llm.encoded_messages import EncodedConversation, items_json


class TurnEncoder(ABC):
    """Encodes the turns of one request."""

    @abstractmethod
    def begins_turn(self, message: Message) -> bool:
        """Whether this is an answer with content. It ends the turn before it."""

    @abstractmethod
    def opening(self, messages: Sequence[Message], *, has_answer: bool) -> list[dict[str, Any]]:
        """The items of the messages before the first answer, or of all if there is none."""

    @abstractmethod
    def turns(self, messages: Sequence[Message], begin: int, end: int) -> list[dict[str, Any]]:
        """The items of whole turns, of which the first one begins here."""

    def may_be_last(self, message: Message) -> bool:
        """Whether the last turns, which are returned as values, may begin with this answer."""
        return self.begins_turn(message)

    def is_complete(self, turn: Sequence[Message]) -> bool:
        """Whether the items of a turn depend on no message outside of it."""
        return True


class EncodedTurns(Struct, frozen=True):
    """The JSON of all items before the last turn, and the items of that turn. The history may be empty."""

    history: Sequence[bytes]
    last: list[dict[str, Any]]


def encoded_turns(
    encoder: TurnEncoder, messages: Sequence[Message], encoded: EncodedConversation
) -> EncodedTurns:
    """The items of a transcript. The last turn isn't kept, because the next request may continue it."""
    first = next((at for at, each in enumerate(messages) if encoder.begins_turn(each)), None)
    if first is None:
        return EncodedTurns((), encoder.opening(messages, has_answer=False))
    opening = encoder.opening(messages[:first], has_answer=True)
    backwards = reversed(range(first, len(messages)))
    last = next((at for at in backwards if encoder.may_be_last(messages[at])), None)
    if last is None:
        return EncodedTurns((), [*opening, *encoder.turns(messages, first, len(messages))])
    history = [items_json(opening)]
    at = first
    while at < last:
        known = encoded.known(messages, at, last)
        if known is not None and not encoder.begins_turn(messages[at + known.count]):
            # What follows belongs to the last of these turns, which ended there before.
            known = encoded.known(messages, at, at + known.count - 1)
        if known is not None:
            history.append(known.text)
            at += known.count
            continue
        end = next(
            after for after in range(at + 1, last + 1) if encoder.begins_turn(messages[after])
        )
        history.append(items_json(encoder.turns(messages, at, end)))
        if encoder.is_complete(messages[at:end]):
            encoded.add(messages[at:end], history[-1])
        else:
            encoded.skip()
        at = end
    encoded.close()
    return EncodedTurns(history, encoder.turns(messages, last, len(messages)))
