"""The part of a run that a streamed answer needs."""

from typing import Any

from app.clock import SystemClock
from app.domain.inference.options import MAX_ANSWER_BYTES
from app.domain.runs.runs import Usage
from app.domain.usage.billed_requests import UsageKind
from app.runtime.ports.models import TokenUsage


class Listener:
    """Records the events and the usage of an answer."""

    class agent:
        class model:
            name = "scripted"

    max_answer_bytes = MAX_ANSWER_BYTES
    clock = SystemClock()

    def __init__(self) -> None:
        self.clock = SystemClock()
        self.usage = Usage(100, 200)
        self.emitted: list[Any] = []
        self.billed: list[str] = []

    def emit(self, event: Any) -> None:
        self.emitted.append(event)

    def bill(self, usage: TokenUsage, model: str, kind: UsageKind) -> None:
        self.billed.append(model)
