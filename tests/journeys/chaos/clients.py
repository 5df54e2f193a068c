"""What people do all day: start, listen, answer tickets, say more, pause, cancel and try again, by whatever way."""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from app.clock import sleep
from tests.journeys.chaos.asking import Client
from tests.journeys.chaos.history import Answer, Json, Kind, Operation
from tests.journeys.chaos.prompts import event_keys, prompt, tree_prompt

_ON_ACTIVE = ("enqueue", "enqueue", "enqueue", "steer", "steer", "interrupt", "reject")
_MODES = ("queue", "steer", "steer", "interrupt_then_queue")
_TAKES_BACK = 0.2
_EARLY = 0.3
"""How often an event comes before the run that waits for it."""
_ANSWERS: dict[str, Json] = {
    "approve": {},
    "edit": {},
    "respond": {"result": "as somebody said"},
    "reject": {"reason": "Not today."},
    "cancel": {"reason": "Never mind."},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Habits:
    """How often people do what, what they ask whom, and how long at most they pause between."""

    acts: Mapping[str, int] = field(
        default_factory=lambda: {
            "start": 8,
            "start_tree": 1,
            "decide": 6,
            "signal": 4,
            "decide_below": 2,
            "say_more": 3,
            "cancel": 1,
            "cancel_below": 1,
            "retry": 1,
            "pause": 2,
            "resume": 3,
        }
    )
    agents: Sequence[str] = ("worker", "worker", "worker", "many_hands", "patient", "lecturer")
    heads: Sequence[str] = ("boss", "patron")
    """Agents that give work to others."""
    prompt: Callable[[random.Random, str], str] = prompt
    longest_pause: float = 0.4


@dataclass(slots=True)
class Person:
    """One client program: one thing at a time, and as many streams as it has runs."""

    name: str
    client: Client
    habits: Habits
    chance: random.Random
    runs: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    trees: list[str] = field(default_factory=list)
    """The runs of those agents that give work to others."""
    _paused: list[str] = field(default_factory=list)
    """The runs that were paused, and not resumed since."""
    events: list[str] = field(default_factory=list)
    """The keys that calls of this person's runs wait for, or will."""
    _heard: set[str] = field(default_factory=set)
    _followed: set[str] = field(default_factory=set)
    _count: int = 0

    async def live(self, over: asyncio.Event) -> None:
        acts = self.habits.acts
        while not over.is_set():
            [act] = self.chance.choices(list(acts), list(acts.values()))
            await getattr(self, act)()
            await sleep(self.chance.uniform(0.0, self.habits.longest_pause))

    # --- acts ---------------------------------------------------------------------------------

    async def start(self) -> None:
        mark = self._mark()
        text = self._prompt(mark)
        if self.events and self.chance.random() < _EARLY:
            await self.signal()
        await self._start(mark, self.chance.choice(self.habits.agents), text)

    async def start_tree(self) -> None:
        """Have one agent give work to others, who give it to others."""
        mark, head = self._mark(), self.chance.choice(self.habits.heads)
        run_id = await self._start(mark, head, tree_prompt(self.chance, head, mark))
        if run_id is not None:
            self.trees.append(run_id)

    async def _start(self, mark: str, agent_id: str, text: str) -> str | None:
        """Under a key, with an id of the client's own, or without either, which nobody may repeat."""
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
        await (self.client.start_and_listen if streams else self.client.ask)(operation)
        if operation.answer is not Answer.DONE:
            return None
        run_id: str = operation.said["run_id"]
        self._know(run_id, is_heard=streams)
        if thread_id not in self._heard and self.chance.random() < 0.3:
            self._heard.add(thread_id)
            self.client.listen_to_thread(thread_id)
        return run_id

    async def decide(self) -> None:
        """Answer a ticket; now and then twice, or with somebody who answers otherwise at the same time."""
        found = await self.client.look("/v1/tickets?status=open&limit=20")
        if found is None or not found["items"]:
            return
        await self._answer(self.chance.choice(found["items"]))

    async def decide_below(self) -> None:
        """Answer what a tree's first run tells of those below it, or take back a call of its own; listen
        to whoever is answered."""
        if not self.trees:
            return
        found = await self.client.look(f"/v1/runs/{self.chance.choice(self.trees[-5:])}")
        waiting = (found or {}).get("waiting") or {}
        asked = waiting.get("tickets_of_children", [])
        if asked:
            ticket = self.chance.choice(asked)
            await self._answer(ticket)
            if ticket["run_id"] not in self._followed:
                self._followed.add(ticket["run_id"])
                self.client.listen_to_run(ticket["run_id"])
        elif found and waiting.get("tickets") and self.chance.random() < _TAKES_BACK:
            ticket = self.chance.choice(waiting["tickets"])
            await self._answer({"run_id": found["run_id"], **ticket})

    async def _answer(self, ticket: Json) -> None:
        first = self._decision(ticket)
        match self.chance.choice(("once", "once", "again", "twice", "against")):
            case "again":
                await self.client.ask(first)
                await self.client.ask(_again(first))
            case "twice":
                await asyncio.gather(self.client.ask(first), self.client.ask(_again(first)))
            case "against":
                await asyncio.gather(
                    self.client.ask(first), self.client.ask(self._decision(ticket))
                )
            case _:
                await self.client.ask(first)

    async def signal(self) -> None:
        """Say that something has happened for which a call waits, or will; now and then twice, or again
        under another id."""
        if not self.events:
            return
        mark, key = self._mark(), self.chance.choice(self.events[-6:])
        body = {"id": mark, "name": "happened", "key": key, "payload": mark}
        first = Operation(mark=mark, kind=Kind.SIGNAL, path="/v1/signals", body=body)
        match self.chance.choice(("once", "once", "again", "twice")):
            case "again":
                await self.client.ask(first)
                await self.client.ask(_again(first))
            case "twice":
                await asyncio.gather(self.client.ask(first), self.client.ask(_again(first)))
            case _:
                await self.client.ask(first)

    async def say_more(self) -> None:
        """To a run or its thread: steer it, queue behind it, or have it make way."""
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
            self._know(operation.said["run_id"])

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
        found = await self.client.look(f"/v1/runs?root_run_id={root}&limit=50")
        items = (found or {}).get("items", ())
        kept = [run["run_id"] for run in items if run["agent_id"] != "clerk"]
        run_id = self.chance.choice([root, *kept])
        path = f"/v1/runs/{run_id}/cancel"
        await self.client.ask(
            Operation(mark=mark, kind=Kind.CANCEL, path=path, body={"reason": mark}, key=mark)
        )

    async def retry(self) -> None:
        """Whatever the run's state is: most of them say no."""
        if not self.runs:
            return
        mark = self._mark()
        path = f"/v1/runs/{self.chance.choice(self.runs[-5:])}/retry"
        operation = Operation(mark=mark, kind=Kind.RETRY, path=path, body={}, key=mark)
        await self.client.ask(operation)
        if operation.answer is Answer.DONE:
            self._know(operation.said["run_id"])

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

    def _know(self, run_id: str, *, is_heard: bool = False) -> None:
        if run_id not in self.runs:
            self.runs.append(run_id)
            if not is_heard:
                self.client.listen_to_run(run_id)

    # --- what is asked ------------------------------------------------------------------------

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
    """The same request as one of its own."""
    return Operation(
        mark=operation.mark, kind=operation.kind, path=operation.path, body=operation.body
    )
