"""The script of a test: what the model answers, one turn after the other."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.domain.ids import AgentId
from app.domain.json_values import Json
from app.llm.catalog import ModelCatalog
from app.llm.scripted.model import Call, ScriptedModel, ScriptedText, ScriptedTurn, turn
from app.runtime.ports.models import LanguageModel, ModelRequest

Part: TypeAlias = ScriptedText | Call
"""The result of `say` and of `call`."""
Turn: TypeAlias = Part | str | Sequence[Part | str]
"""One answer of the model: text, a call, or several of them."""

SCRIPTED_MODEL = "scripted"


class ScriptEnded(AssertionError):
    """The agent asked its model more often than the test's script has turns."""


def say(text: str) -> Part:
    """The model answers with this text, streamed word by word."""
    return ScriptedText.words(text)


def call(tool: str, /, **arguments: Json) -> Part:
    """The model calls a tool."""
    return Call(tool=tool, arguments=arguments)


class ScriptedAnswers:
    """Answers the first request with the first turn, and so on. Keeps the requests."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._left = [_scripted(each) for each in turns]
        self._used = 0
        self.requests: list[ModelRequest] = []

    @property
    def unused_turns(self) -> int:
        """The turns that no request has used."""
        return len(self._left)

    def extend(self, turns: Sequence[Turn]) -> None:
        self._left += [_scripted(each) for each in turns]

    def __call__(self, request: ModelRequest) -> ScriptedTurn:
        self.requests.append(request)
        if not self._left:
            raise ScriptEnded(
                f"the agent asked its model again after all {self._used} turns of the script;"
                " add a turn to `script`, or look at `run.messages` to see why it asked"
            )
        self._used += 1
        return self._left.pop(0)


class ScriptedModels(ModelCatalog):
    """The scripted model under every name that an agents file uses. No key is needed."""

    def __init__(self, script: Callable[[ModelRequest], ScriptedTurn]) -> None:
        super().__init__([], {})
        self._scripted = ScriptedModel(SCRIPTED_MODEL, script)

    def model(self, name: str) -> LanguageModel:
        return self._scripted


def _scripted(each: Turn) -> ScriptedTurn:
    return turn(each) if isinstance(each, str | ScriptedText | Call) else turn(*each)


def agent_named(names: Sequence[AgentId], agent: str | None) -> AgentId:
    """The agent to run: the named one, or the only one of the file."""
    known = ", ".join(names)
    if agent is None:
        if len(names) != 1:
            raise ValueError(f"the file has the agents {known}; say which one: agent=…")
        return names[0]
    if agent not in names:
        raise ValueError(f"there is no agent {agent!r}; the file has: {known}")
    return AgentId(agent)
