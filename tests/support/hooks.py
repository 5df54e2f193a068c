"""Plugins for tests: hooks that remember what they saw, and answer as they are told."""

from collections.abc import Callable, Sequence
from typing import Any

from app.runtime.plugins import HookView, Phase, Plugin, Request

Answer = Callable[[HookView], Sequence[Request]]


class Hooks:
    """One plugin; in each of its phases it remembers the view and answers by `answers`."""

    def __init__(self, answers: dict[Phase, Answer], *, name: str = "hooks", **more: Any) -> None:
        self.seen: list[HookView] = []
        self._answers = answers
        self.plugin = Plugin(name=name, hooks=dict.fromkeys(answers, self._hook), **more)

    async def _hook(self, view: HookView) -> Sequence[Request]:
        self.seen.append(view)
        return self._answers[view.phase](view)

    @property
    def phases(self) -> list[Phase]:
        return [view.phase for view in self.seen]

    def calls(self, phase: Phase) -> list[str]:
        """The ids of the calls that it was asked about in a phase."""
        return [view.call.id for view in self.seen if view.phase is phase and view.call]


def nothing(_: HookView) -> Sequence[Request]:
    return ()


def about(call_id: str, *requests: Request) -> Answer:
    """Ask for something about one call only."""
    return lambda view: requests if view.call is not None and view.call.id == call_id else ()


def watching(*phases: Phase, name: str = "witness") -> Hooks:
    """A plugin that only looks on."""
    return Hooks(dict.fromkeys(phases, nothing), name=name)
