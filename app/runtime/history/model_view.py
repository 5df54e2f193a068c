"""The log as a provider should see it: every call with exactly one result, as it was really run, and a
summary instead of what it stands for.

A view, never a repair: the log stays as it is.
"""

from collections.abc import Sequence

from app.domain.threads.messages import LoggedMessage, Message
from app.runtime.history.call_pairs import answered
from app.runtime.history.summaries import with_summary_in_place


def model_view(log: Sequence[LoggedMessage]) -> list[Message]:
    """The log with its summary in place, and every call answered."""
    return answered(with_summary_in_place(_without_a_torn_end(log)))


def _without_a_torn_end(log: Sequence[LoggedMessage]) -> Sequence[LoggedMessage]:
    """Nobody has answered to what was cut short last: whoever tries again says it anew."""
    end = len(log)
    while end and log[end - 1].message.cut_short is not None:
        end -= 1
    return log[:end]
