"""The log as a provider should see it: every call with exactly one result, as it was really run, and a
summary instead of what it stands for.

A view, never a repair: the log stays as it is.
"""

from collections.abc import Sequence

from app.domain.messages import LoggedMessage, Message
from app.runtime.call_pairs import answered
from app.runtime.summaries import with_summary_in_place


def provider_view(log: Sequence[LoggedMessage]) -> list[Message]:
    return answered(with_summary_in_place(log))
