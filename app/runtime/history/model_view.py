"""The log as the model sees it: each call with one result, and a summary instead of the messages it covers.

This is only a view: the log stays as it is.
"""

from collections.abc import Sequence

from app.domain.threads.messages import LoggedMessage, Message
from app.runtime.history.call_pairs import with_one_result_per_call
from app.runtime.history.summaries import with_summary_in_place


def model_view(log: Sequence[LoggedMessage]) -> list[Message]:
    """The log with its summary in place, and one result per call."""
    return with_one_result_per_call(with_summary_in_place(_without_truncated_end(log)))


def _without_truncated_end(log: Sequence[LoggedMessage]) -> Sequence[LoggedMessage]:
    """The log without truncated answers at its end: the next run writes the answer anew."""
    end = len(log)
    while end and log[end - 1].message.cut_short is not None:
        end -= 1
    return log[:end]
