"""Infers a run's message input from its request or from the log, if its row has none."""

from collections.abc import Sequence
from itertools import takewhile

from app.domain.ids import MessageId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import MessageInput
from app.domain.threads.messages import LoggedMessage, MessageRange


def inferred_input(
    request: JsonObject, log: Sequence[LoggedMessage], run_id: RunId
) -> MessageInput | None:
    """The range of the log that the run was started with.

    If the request names its messages, they are the input. If it has their number, the input is as many of the
    newest messages before the run's own. Otherwise it is the whole log before the run's own messages. It is
    None while the log has no message of it, as in a run that is cancelled before it reads one.
    """
    before = list(takewhile(lambda entry: entry.message.run_id != run_id, log))
    ids = tuple(MessageId(each) for each in request.get("input_message_ids", ()))
    count = max(request.get("input_message_count", 0), len(ids))
    named = [entry for entry in before if entry.message.id in ids]
    range_ = _range_of(named or before[-count:] if count else before)
    return None if range_ is None else MessageInput(range_, ids)


def _range_of(entries: Sequence[LoggedMessage]) -> MessageRange | None:
    return MessageRange.of(entries[0].seq, entries[-1].seq) if entries else None
