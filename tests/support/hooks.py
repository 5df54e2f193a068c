"""Plugins for tests: hooks that record their views, and return given actions."""

from collections.abc import Callable, Sequence
from typing import Any

from app.runtime.plugins import HookView, Phase, Plugin, Request

Answer = Callable[[HookView], Sequence[Request]]


class Hooks:
    """One plugin; in each of its phases it records the view and returns the action of `answers`."""

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
        """The ids of the calls in the views of a phase."""
        return [view.call.id for view in self.seen if view.phase is phase and view.call]


def nothing(_: HookView) -> Sequence[Request]:
    return ()


def about(call_id: str, *requests: Request) -> Answer:
    """Return an action for one call only."""
    return lambda view: requests if view.call is not None and view.call.id == call_id else ()


def watching(*phases: Phase, name: str = "witness") -> Hooks:
    """A plugin that only records its views."""
    return Hooks(dict.fromkeys(phases, nothing), name=name)
