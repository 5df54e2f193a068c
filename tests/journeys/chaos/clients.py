"""Simulated users: they start runs, follow them, answer tickets, send messages, pause, cancel and retry."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from app.clock import sleep
from tests.journeys.chaos.history import Answer, Json, Kind, Operation
from tests.journeys.chaos.prompts import event_keys, prompt, tree_prompt
from tests.journeys.chaos.requests import Client

_ON_ACTIVE = ("enqueue", "enqueue", "enqueue", "steer", "steer", "interrupt", "reject")
_MODES = ("queue", "steer", "steer", "interrupt_then_queue")
_CANCELS_CALL = 0.2
_EARLY_SIGNAL = 0.3
"""How often a signal is sent before the run that waits for it."""
_ANSWERS: dict[str, Json] = {
    "approve": {},
    "edit": {},
    "respond": {"result": "as a person decided"},
    "reject": {"reason": "Not today."},
    "cancel": {"reason": "Never mind."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """The weights of a user's actions, its agents and prompts, and the longest pause between actions."""

    acts: Mapping[str, int] = field(
        default_factory=lambda: {
            "start": 8,
            "start_tree": 1,
            "decide": 6,
            "signal": 4,
            "decide_below": 2,
            "send_input": 3,
            "cancel": 1,
            "cancel_below": 1,
            "retry": 1,
            "pause": 2,
            "resume": 3,
        }
    )
    agents: Sequence[str] = ("worker", "worker", "worker", "many_hands", "patient", "lecturer")
    heads: Sequence[str] = ("boss", "patron")
    """Agents that delegate."""
    prompt: Callable[[random.Random, str], str] = prompt
    longest_pause: float = 0.4


@dataclass(slots=True)
class Person:
    """One client program: one request at a time, and a stream for each of its runs."""

    name: str
    client: Client
    habits: Habits
    chance: random.Random
    runs: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    trees: list[str] = field(default_factory=list)
    """The runs of agents that delegate."""
    _paused: list[str] = field(default_factory=list)
    """Runs that were paused and not resumed since."""
    events: list[str] = field(default_factory=list)
    """The event keys that calls of this user's runs wait for, or will wait for."""
    _followed_threads: set[str] = field(default_factory=set)
    _followed: set[str] = field(default_factory=set)
    _count: int = 0

    async def act_until(self, over: asyncio.Event) -> None:
        acts = self.habits.acts
        while not over.is_set():
            [act] = self.chance.choices(list(acts), list(acts.values()))
            await getattr(self, act)()
            await sleep(self.chance.uniform(0.0, self.habits.longest_pause))

    # --- actions ------------------------------------------------------------------------------

    async def start(self) -> None:
        mark = self._mark()
        text = self._prompt(mark)
        if self.events and self.chance.random() < _EARLY_SIGNAL:
            await self.signal()
        await self._start(mark, self.chance.choice(self.habits.agents), text)

    async def start_tree(self) -> None:
        """Start an agent that delegates over several levels."""
        mark, head = self._mark(), self.chance.choice(self.habits.heads)
        run_id = await self._start(mark, head, tree_prompt(self.chance, head, mark))
        if run_id is not None:
            self.trees.append(run_id)

    async def _start(self, mark: str, agent_id: str, text: str) -> str | None:
        """With an idempotency key, with a run id, or with neither: then the client may not repeat it."""
        thread_id = self._thread()
        on_active = self.chance.choice(_ON_ACTIVE)
        body: Json = {
            "agent_id": agent_id,
            "thread_id": thread_id,
            "on_active": on_active,
            "metadata": {"mark": mark},
            "messages": [_message(mark, text)],
        }
        identified = self.chance.choice(("key", "key", "key", "id", ""))
        if identified == "id" and on_active != "steer":
            body["run_id"] = self._new_id()
        key = mark if identified == "key" else None
        operation = Operation(mark=mark, kind=Kind.START, path="/v1/runs", body=body, key=key)
        streams = self.chance.random() < 0.3
        await (self.client.start_and_follow if streams else self.client.ask)(operation)
        if operation.answer is not Answer.DONE:
            return None
        run_id: str = operation.response["id"]
        self._remember(run_id, is_followed=streams)
        if thread_id not in self._followed_threads and self.chance.random() < 0.3:
            self._followed_threads.add(thread_id)
            self.client.follow_thread(thread_id)
        return run_id

    async def decide(self) -> None:
        """Answer a ticket; sometimes twice, or with a contradicting decision at the same time."""
        found = await self.client.get("/v1/tickets?status=open&limit=20")
        if found is None or not found["items"]:
            return
        await self._answer(self.chance.choice(found["items"]))

    async def decide_below(self) -> None:
        """Answer a ticket that the root of a tree shows for a child, and follow that child; or cancel a delegating
        call of the root."""
        if not self.trees:
            return
        found = await self.client.get(f"/v1/runs/{self.chance.choice(self.trees[-5:])}")
        waiting = (found or {}).get("waiting") or {}
        shown = waiting.get("tickets", [])
        own = [ticket for ticket in shown if ticket["run_id"] == (found or {})["id"]]
        asked = [ticket for ticket in shown if ticket["run_id"] != (found or {})["id"]]
        if asked:
            ticket = self.chance.choice(asked)
            await self._answer(ticket)
            if ticket["run_id"] not in self._followed:
                self._followed.add(ticket["run_id"])
                self.client.follow_run(ticket["run_id"])
        elif found and own and self.chance.random() < _CANCELS_CALL:
            await self._answer(self.chance.choice(own))

    async def _answer(self, ticket: Json) -> None:
        first = self._decision(ticket)
        match self.chance.choice(("once", "once", "again", "twice", "contradict")):
            case "again":
                await self.client.ask(first)
                await self.client.ask(_again(first))
            case "twice":
                await asyncio.gather(self.client.ask(first), self.client.ask(_again(first)))
            case "contradict":
                await asyncio.gather(
                    self.client.ask(first), self.client.ask(self._decision(ticket))
                )
            case _:
                await self.client.ask(first)

    async def signal(self) -> None:
        """Send a signal that a call waits for, or will wait for; sometimes twice, or again under another id."""
        if not self.events:
            return
        mark, key = self._mark(), self.chance.choice(self.events[-6:])
        body = {"signal_id": mark, "name": "happened", "key": key, "payload": mark}
        first = Operation(mark=mark, kind=Kind.SIGNAL, path="/v1/signals", body=body)
        match self.chance.choice(("once", "once", "again", "twice")):
            case "again":
                await self.client.ask(first)
                await self.client.ask(_again(first))
            case "twice":
                await asyncio.gather(self.client.ask(first), self.client.ask(_again(first)))
            case _:
                await self.client.ask(first)

    async def send_input(self) -> None:
        """Send a message to a run or its thread: steer it, queue behind it, or interrupt it."""
        if not self.runs:
            return
        mark, run_id = self._mark(), self.runs[-1]
        body = {
            "mode": self.chance.choice(_MODES),
            "messages": [_message(mark, self._prompt(mark))],
        }
        path = f"/v1/runs/{run_id}/inputs"
        if self.threads and self.chance.random() < 0.3:
            path = f"/v1/threads/{self.chance.choice(self.threads)}/messages"
        operation = Operation(mark=mark, kind=Kind.INPUT, path=path, body=body, key=mark)
        await self.client.ask(operation)
        if operation.answer is Answer.DONE:
            self._remember(operation.response["run_id"])

    async def cancel(self) -> None:
        if not self.runs:
            return
        mark = self._mark()
        path = f"/v1/runs/{self.chance.choice(self.runs[-5:])}/cancel"
        if self.chance.random() < 0.5:
            path += "?wait=1"
        await self.client.ask(
            Operation(mark=mark, kind=Kind.CANCEL, path=path, body={"reason": mark}, key=mark)
        )

    async def cancel_below(self) -> None:
        """Cancel a tree, or some run in the middle of one."""
        if not self.trees:
            return
        mark, root = self._mark(), self.chance.choice(self.trees[-5:])
        found = await self.client.get(f"/v1/runs?root_run_id={root}&limit=50")
        items = (found or {}).get("items", ())
        kept_runs = [run["id"] for run in items if run["agent_id"] != "clerk"]
        run_id = self.chance.choice([root, *kept_runs])
        path = f"/v1/runs/{run_id}/cancel"
        await self.client.ask(
            Operation(mark=mark, kind=Kind.CANCEL, path=path, body={"reason": mark}, key=mark)
        )

    async def retry(self) -> None:
        """Retry a run in any state; most states refuse it."""
        if not self.runs:
            return
        mark = self._mark()
        path = f"/v1/runs/{self.chance.choice(self.runs[-5:])}/retry"
        operation = Operation(mark=mark, kind=Kind.RETRY, path=path, body={}, key=mark)
        await self.client.ask(operation)
        if operation.answer is Answer.DONE:
            self._remember(operation.response["id"])

    async def pause(self) -> None:
        """Pause a run in any state."""
        if not self.runs:
            return
        run_id = self.chance.choice(self.runs[-5:])
        await self.client.ask(self._pause(run_id))
        if run_id not in self._paused:
            self._paused.append(run_id)

    async def resume(self) -> None:
        """Resume a run that was paused, or one that wasn't."""
        if not self.runs:
            return
        run_id = self.chance.choice(self._paused or self.runs[-5:])
        mark, path = self._mark(), f"/v1/runs/{run_id}/resume"
        operation = Operation(mark=mark, kind=Kind.RESUME, path=path, body={}, key=mark)
        await self.client.ask(operation)
        if operation.answer is not Answer.UNKNOWN and run_id in self._paused:
            self._paused.remove(run_id)

    def _pause(self, run_id: str) -> Operation:
        mark, path = self._mark(), f"/v1/runs/{run_id}/pause"
        if self.chance.random() < 0.5:
            path += "?wait=1"
        return Operation(mark=mark, kind=Kind.PAUSE, path=path, body={"reason": mark}, key=mark)

    def _remember(self, run_id: str, *, is_followed: bool = False) -> None:
        if run_id not in self.runs:
            self.runs.append(run_id)
            if not is_followed:
                self.client.follow_run(run_id)

    # --- requests -----------------------------------------------------------------------------

    def _decision(self, ticket: Json) -> Operation:
        mark = self._mark()
        action = self.chance.choice(ticket["allowed_actions"])
        answer = {"ticket_id": ticket["id"], "action": action, **_ANSWERS[action]}
        if action == "edit":
            answer["arguments"] = {**ticket["arguments"], "what": f"{mark}/edited"}
        if self.chance.random() < 0.7:
            answer["decision_id"] = mark
        path = f"/v1/runs/{ticket['run_id']}/decisions"
        return Operation(mark=mark, kind=Kind.DECIDE, path=path, body={"decisions": [answer]})

    def _prompt(self, mark: str) -> str:
        text = self.habits.prompt(self.chance, mark)
        self.events += event_keys(text)
        return text

    def _mark(self) -> str:
        self._count += 1
        return f"{self.name}.{self._count}"

    def _thread(self) -> str:
        if len(self.threads) < 2 or self.chance.random() < 0.2:
            self.threads = [*self.threads[-1:], self._new_id()]
        return self.chance.choice(self.threads)

    def _new_id(self) -> str:
        return str(UUID(int=self.chance.getrandbits(128), version=4))


def _message(mark: str, text: str) -> Json:
    return {"role": "user", "content": f"[{mark}] {text}"}


def _again(operation: Operation) -> Operation:
    """A copy of the request, with its own record."""
    return Operation(
        mark=operation.mark, kind=operation.kind, path=operation.path, body=operation.body
    )
