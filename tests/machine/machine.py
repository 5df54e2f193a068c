"""The state machine: Hypothesis draws scripts and incidents for a thread, and each step is checked."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from app.domain.agents.specs import AgentSpec
from app.domain.ids import AgentId, CallId
from app.domain.inference.failures import FailureKind, failed
from app.domain.tickets.decisions import Action
from app.domain.tools.tool_calls import Effect
from app.llm.scripted.model import Call, Fail, ScriptedText, ScriptedTurn
from tests.support.thread_driver import Incident, IncidentKind, Reply, ThreadDriver
from tests.support.thread_rows import Rows, check_rows, check_same
from tests.support.watching import WatchedTool

FARTHEST = 40
"""The last point at which a incident is drawn; most executions have fewer points."""

_NAMES = (
    "read",
    "safe",
    "risky",
    "gated",
    "gated_safe",
    "asking",
    "asking_safe",
    "broken",
    "missing",
)


def tools() -> dict[str, WatchedTool]:
    """One tool of each kind; `missing` is not among them."""
    all_tools = [
        WatchedTool(name="read", effect=Effect.READ),
        WatchedTool(name="safe", effect=Effect.IDEMPOTENT),
        WatchedTool(name="risky", effect=Effect.UNSAFE),
        WatchedTool(name="gated", effect=Effect.UNSAFE),
        WatchedTool(name="gated_safe", effect=Effect.IDEMPOTENT),
        WatchedTool(name="asking", effect=Effect.UNSAFE, asks=2),
        WatchedTool(name="asking_safe", effect=Effect.IDEMPOTENT, asks=1),
        WatchedTool(name="broken", effect=Effect.READ, fails=True),
    ]
    return {tool.name: tool for tool in all_tools}


SPEC = AgentSpec(
    id=AgentId("tester"),
    model="scripted",
    tools=tuple(tools()),
    approval=("gated", "gated_safe"),
    max_rounds=4,
)

# --- strategies -----------------------------------------------------------------------------------

_ARGUMENTS = st.sampled_from([{"n": 1}, {"n": 2}, {}, None, "not {json"])
_ERROR = failed(FailureKind.INVALID_REQUEST, "the provider is out of order")


@st.composite
def turns(draw: st.DrawFn) -> ScriptedTurn:
    """One answer with text and calls; a few answers break off."""
    pieces = draw(st.lists(st.sampled_from(["Well, ", "let me ", "see."]), max_size=2))
    names = draw(st.lists(st.sampled_from(_NAMES), max_size=3))
    calls = [
        Call(tool=name, arguments=draw(_ARGUMENTS), id=CallId(f"c{number}"))
        for number, name in enumerate(names, 1)
    ]
    broken = [Fail(_ERROR)] if draw(st.integers(0, 19)) == 19 else []
    text = [ScriptedText(tuple(pieces))] if pieces else []
    return ScriptedTurn((*text, *calls, *broken))


_SCRIPTS = st.lists(turns(), max_size=4)
_PASSES = st.sets(st.integers(0, 2), max_size=2)
_REPLIES = st.builds(Reply, st.integers(0, 2), st.sampled_from(Action))
_HAPPENINGS = st.lists(
    st.builds(
        Incident,
        at=st.integers(1, FARTHEST),
        kind=st.sampled_from(IncidentKind),
        hangs=st.booleans(),
        reply=_REPLIES,
    ),
    max_size=3,
)


class ThreadMachine(RuleBasedStateMachine):
    """A thread with one run after the other. All players do the same and must have the same rows."""

    def __init__(self, runner: asyncio.Runner, players: Sequence[ThreadDriver]) -> None:
        super().__init__()
        self._run = runner.run
        self._players = players
        # In Postgres the order of parallel calls depends on time.
        self._is_real = any(player.system.is_real for player in players)
        self._is_sound = False
        self.rows: Rows

    @initialize(script=_SCRIPTS, passes=_PASSES, here=st.booleans(), parallel=st.booleans())
    def start(
        self, script: list[ScriptedTurn], passes: set[int], here: bool, parallel: bool
    ) -> None:
        is_parallel = parallel and not self._is_real
        self._each(
            lambda player: player.start(script, here=here, passes=passes, parallel=is_parallel)
        )

    @precondition(lambda self: not self.rows.record.is_done)
    @rule(incidents=_HAPPENINGS, is_eager=st.booleans())
    def execute(self, incidents: list[Incident], is_eager: bool) -> None:
        is_eager = is_eager or self._is_real
        self._each(lambda player: player.execute(incidents, is_eager=is_eager))

    @precondition(lambda self: bool(self.rows.open_tickets))
    @rule(reply=_REPLIES)
    def decide(self, reply: Reply) -> None:
        self._each(lambda player: player.decide(reply))

    @precondition(lambda self: not self.rows.record.is_done)
    @rule()
    def cancel(self) -> None:
        self._each(lambda player: player.cancel())

    @precondition(lambda self: self.rows.record.is_done)
    @rule(script=_SCRIPTS, passes=_PASSES, here=st.booleans(), parallel=st.booleans())
    def start_another(
        self, script: list[ScriptedTurn], passes: set[int], here: bool, parallel: bool
    ) -> None:
        is_parallel = parallel and not self._is_real
        self._each(
            lambda player: player.start(script, here=here, passes=passes, parallel=is_parallel)
        )

    def teardown(self) -> None:
        """The run ends after any incidents, and the thread takes the next message."""
        if self._is_sound:
            self._each(lambda player: player.settle())
            self._each(lambda player: player.start([], here=True))
            self._each(lambda player: player.settle())
            assert self.rows.log[-1].message.text == "That is all."

    def _each(self, act: Callable[[ThreadDriver], Coroutine[Any, Any, object]]) -> None:
        """Let every player act, then check and compare their rows."""
        self._is_sound = False
        all_rows = [self._run(self._played(player, act)) for player in self._players]
        self.rows = all_rows[0]
        for rows in all_rows:
            check_rows(rows)
        for rows in all_rows[1:]:
            check_same(self.rows, rows)
        self._is_sound = True

    async def _played(
        self, player: ThreadDriver, act: Callable[[ThreadDriver], Coroutine[Any, Any, object]]
    ) -> Rows:
        await act(player)
        return await player.system.rows()
