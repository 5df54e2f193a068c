"""The requests that a run sends to its model: the log in order, context messages, and tools."""

from collections.abc import Sequence

import pytest

from app.domain.runs.runs import Done
from app.domain.runs.terminations import Failed
from app.domain.threads.messages import Message, Role
from app.llm.scripted.model import ScriptInOrder, in_order, turn
from app.runtime.plugins import (
    AddContext,
    ContextTarget,
    HideTools,
    HookView,
    OnlyTools,
    Phase,
    Plugin,
    Request,
    ViewRequest,
)
from app.runtime.ports.models import ModelRequest
from tests.support.probes import Probe
from tests.support.replicas import Run, an_agent, configured, open_replica, texts_of

pytestmark = pytest.mark.anyio


def requesting(*requests: Request, name: str = "asking") -> Plugin:
    """A plugin that makes the same request before each inference."""

    async def hook(_: HookView) -> Sequence[Request]:
        return requests

    return Plugin(name=name, hooks={Phase.BEFORE_INFERENCE: hook})


async def run_with(database_url: str, script: ScriptInOrder, probe: Probe, *plugins: Plugin) -> Run:
    async with open_replica(database_url, an_agent(probe.tool, plugins=plugins), script) as replica:
        run = await replica.start("please")
        await run.finished()
        return run


def two_steps(probe: Probe) -> ScriptInOrder:
    return in_order(turn("calling", probe.call("c1")), turn("done"))


def texts(request: ModelRequest) -> list[str]:
    return [message.text for message in request.messages]


async def test_message_ordering_preserved_in_inference_request(database_url: str) -> None:
    probe = Probe()
    script = in_order(
        turn("one", probe.call("c1"), probe.call("c2")), turn("two", probe.call("c3")), turn("end")
    )
    await run_with(database_url, script, probe)
    asked = [
        ("user", "please"),
        ("assistant", "one"),
        ("tool", "probe did it"),
        ("tool", "probe did it"),
        ("assistant", "two"),
        ("tool", "probe did it"),
    ]
    assert [[(m.role.value, m.text) for m in request.messages] for request in script.requests] == [
        asked[:1],
        asked[:4],
        asked,
    ]


async def test_tool_results_visible_in_next_step_messages(database_url: str) -> None:
    probe = Probe()
    script = two_steps(probe)
    await run_with(database_url, script, probe)
    result = script.requests[1].messages[-1]
    assert (result.role, result.tool_call_id, result.text) == (Role.TOOL, "c1", "probe did it")


async def test_context_messages_are_inserted_at_their_targets_and_add_up(database_url: str) -> None:
    probe = Probe()
    script = two_steps(probe)
    await run_with(
        database_url,
        script,
        probe,
        requesting(AddContext(key="a", text="on top", target=ContextTarget.SYSTEM)),
        requesting(
            AddContext(key="b", text="before"),
            AddContext(key="c", text="at the end", target=ContextTarget.SUFFIX),
            name="other",
        ),
    )
    assert texts(script.requests[0]) == ["on top", "before", "please", "at the end"]
    assert texts(script.requests[1]) == [
        "on top",
        "before",
        "please",
        "calling",
        "probe did it",
        "at the end",
    ]


async def test_context_messages_never_enter_the_log(database_url: str) -> None:
    probe = Probe()
    script = two_steps(probe)
    plugin = requesting(AddContext(key="a", text="psst"))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), script
    ) as replica:
        run = await replica.start("please")
        await run.finished()
        log = await run.log()
    assert [text for _, text in texts_of(log)] == ["please", "calling", "probe did it", "done"]


async def test_a_cooldown_persists_over_a_suspension(database_url: str) -> None:
    """The shown context messages are stored with the run, because another worker may resume it."""
    probe = Probe(asks=1)
    script = two_steps(probe)
    plugin = requesting(AddContext(key="a", text="psst", cooldown_steps=5))
    async with open_replica(
        database_url, an_agent(probe.tool, plugins=[plugin]), script
    ) as replica:
        run = await replica.start("please")
        await run.finished()
        await run.decide("c1", "respond", result="fine")
        await run.finished(2)
    assert "psst" in texts(script.requests[0])
    assert "psst" not in texts(script.requests[1])


async def test_tool_descriptors_are_sorted_by_name_and_always_sent(database_url: str) -> None:
    names = ["zebra", "apple", "mango"]
    probes = [Probe(name=name) for name in names]
    script = in_order(turn(probes[0].call("c1")), turn("done"))
    agent = an_agent(*(probe.tool for probe in probes))
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert [[tool.name for tool in request.tools] for request in script.requests] == [
        sorted(names)
    ] * 2


async def test_a_plugin_decides_which_tools_are_offered(database_url: str) -> None:
    probes = [Probe(name=name) for name in ("a", "b", "c")]
    script = in_order(turn("done"))
    plugins = [
        requesting(OnlyTools(frozenset({"a"})), name="one"),
        requesting(OnlyTools(frozenset({"b"})), HideTools(frozenset({"a"})), name="two"),
    ]
    agent = an_agent(*(probe.tool for probe in probes), plugins=plugins)
    async with open_replica(database_url, agent, script) as replica:
        await (await replica.start()).finished()
    assert [tool.name for tool in script.requests[0].tools] == ["b"]


async def test_transforms_see_the_whole_request_in_their_order(database_url: str) -> None:
    def tagging(name: str) -> Plugin:
        def transform(messages: Sequence[Message], request: ViewRequest) -> Sequence[Message]:
            seen.append((name, [m.text for m in messages], [t.name for t in request.tools]))
            return messages[1:]

        return Plugin(name=name, transform=transform)

    seen: list[tuple[str, list[str], list[str]]] = []
    probe, script = Probe(), in_order(turn("done"))
    await run_with(
        database_url,
        script,
        probe,
        requesting(AddContext(key="a", text="context"), AddContext(key="b", text="more")),
        tagging("first"),
        tagging("second"),
    )
    assert seen == [
        ("first", ["context", "more", "please"], ["probe"]),
        ("second", ["more", "please"], ["probe"]),
    ]
    assert texts(script.requests[0]) == ["please"]


async def test_a_transform_that_raises_ends_the_run_with_its_error(database_url: str) -> None:
    def transform(messages: Sequence[Message], request: ViewRequest) -> Sequence[Message]:
        raise ValueError("oops")

    probe, script = Probe(), in_order(turn("done"))
    agent = an_agent(probe.tool, plugins=[Plugin(name="bad", transform=transform)])
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start()
        await run.finished()
        state = (await run.now()).state
    assert isinstance(state, Done)
    assert isinstance(state.termination, Failed)
    assert state.termination.code == "plugin_failed"
    assert script.requests == []


async def test_a_window_shortens_requests_and_never_the_log(database_url: str) -> None:
    window = {"max_context_tokens": 2000, "max_output_tokens": 1000, "min_recent_messages": 1}
    script = in_order(*[turn("word " * 400)] * 5)
    agent = configured(an_agent(), context_window=window)
    async with open_replica(database_url, agent, script) as replica:
        run = await replica.start("0")
        await run.finished()
        for n in range(1, 5):
            run = await replica.start(str(n), thread_id=run.thread_id)
            await run.finished()
        log = await run.log()
    assert len(log) == 10
    assert [len(request.messages) for request in script.requests] == [1, 3, 3, 3, 3]
    assert script.requests[-1].messages[-1].text == "4"
