"""The message input of a run whose row names none: inferred from its request, else from the log."""

from collections.abc import Sequence

from app.domain.ids import MessageId, RunId
from app.domain.json_values import JsonObject
from app.domain.runs.runs import MessageInput
from app.domain.threads.messages import LoggedMessage, MessageRange


def inferred_input(
    request: JsonObject, log: Sequence[LoggedMessage], run_id: RunId
) -> MessageInput | None:
    """The part of the log that the run was started with.

    A request that names its messages or their number covers those, or else the newest ones before the
    run's own. Without such a request the input is all that was in the log before the run's own messages.
    Returns None while no message of it is in the log: a run may be cancelled before it has read one.
    """
    before = list(log)
    for place, entry in enumerate(log):
        if entry.message.run_id == run_id:
            before = before[:place]
            break
    ids = tuple(MessageId(each) for each in request.get("input_message_ids", ()))
    count = max(request.get("input_message_count", 0), len(ids))
    named = [entry for entry in before if entry.message.id in ids]
    range_ = _range_of(named or before[-count:] if count else before)
    return None if range_ is None else MessageInput(range_, ids)


def _range_of(entries: Sequence[LoggedMessage]) -> MessageRange | None:
    return MessageRange.of(entries[0].seq, entries[-1].seq) if entries else None
