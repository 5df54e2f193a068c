"""A run of another Holdfast as its events tell of it: said on as they come, and what it came to.

That it rests is an event; whom it waits for then is only in the view of it. People have to be asked; runs
below it that are at work are waited for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from app.backends.base import TurnEmitter
from app.backends.remote_holdfast.responses import read
from app.backends.remote_holdfast.tickets import (
    RemoteTicket,
    owners_below,
    questions_of,
    without_owners,
)
from app.domain.agents.backend_results import (
    Artifact,
    BackendOutput,
    BackendResult,
    Completed,
    WaitingAuth,
    WaitingInput,
    output_from_json,
    status_of_termination,
)
from app.domain.json_values import JsonObject, as_object
from app.domain.runs.terminations import termination_from_json

PROGRESS = "remote-run-progress"


@dataclass(slots=True)
class RemoteRunView:
    voice: TurnEmitter
    last_id: int = 0
    is_suspended: bool = False
    """It executes no more, as far as it was heard; it may wait for people, or for runs below it."""
    needs_snapshot: bool = False
    """It rests, and something may have become of what it waits for."""
    _response: str = ""
    _asked: Sequence[RemoteTicket] = ()
    _has_spoken: bool = False

    def continue_from(self, last_id: int) -> None:
        """What has been heard before ended with a run at rest."""
        self.last_id, self.is_suspended = last_id, last_id > 0

    async def apply_event(self, sse: httpx2.ServerSentEvent) -> BackendResult | None:
        """One frame; the result, if it is the one that tells it."""
        event = as_object(read(sse.data)) or {}
        if sse.id:
            self.last_id = int(sse.id)
        self.needs_snapshot = False
        match event.get("event_type"):
            case "step_start":
                self._start_over("next_step")
            case "stream_reset":
                self._start_over(str(event["reason"]))
            case "text_delta":
                self._has_spoken = True
                self.voice.text(event["delta"])
                await self.voice.wait_for_capacity()
            case "tool_call_start":
                self._show(event, tool=event["name"], status="running")
            case "tool_call_done":
                self._show(event, call_id=event["id"], status=event["outcome"])
            case "activity_snapshot":
                self.needs_snapshot = self.is_suspended
            case "run_start":
                self.is_suspended = False
            case "run_finish":
                return self._finished(event)
        return None

    def apply_record(self, run: JsonObject) -> BackendResult | None:
        """Where it stands while it rests; what has become of it since, its events tell."""
        self.needs_snapshot = False
        if run["status"] != "waiting":
            self.is_suspended = False
            return None
        self._asked = questions_of(run)
        return _waiting(self._asked, self._response)

    def apply_snapshot(self, snapshot: JsonObject) -> BackendResult | None:
        """Where the run stands, when its events from the last one on can't be had, or there are none."""
        run = snapshot["run"]
        self.last_id = max(self.last_id, int(snapshot["last_event_id"]))
        if run["status"] == "done":
            return _result(run["termination"], run["final_output"] or "", ())
        if run["status"] == "waiting":
            self.is_suspended = True
            return self.apply_record(run)
        self.is_suspended = False
        self._start_over("gap")
        if snapshot["open_text"]:
            self._has_spoken = True
            self.voice.text(snapshot["open_text"])
        return None

    def bound(self, result: BackendResult, binding: JsonObject) -> BackendResult:
        """The result, with where the next turn goes on."""
        known = {**without_owners(binding), **owners_below(self._asked)}
        return replace(result, binding={**known, "after": self.last_id})

    def _start_over(self, reason: str) -> None:
        if self._has_spoken:
            self._has_spoken = False
            self.voice.start_over(reason)

    def _show(self, event: Mapping[str, Any], **more: str) -> None:
        shown = {"schema": f"{PROGRESS}.v1", "run_id": event["run_id"], **more}
        self.voice.activity(PROGRESS, shown)

    def _finished(self, event: Mapping[str, Any]) -> BackendResult | None:
        result = event.get("result") or {}
        output = output_from_json(result.get("output") or {})
        response = str(result.get("response") or "")
        if event["termination"]["type"] == "suspended":
            self.is_suspended = self.needs_snapshot = True
            self._response = response
            return None
        return _result(event["termination"], response, output.artifacts)


def _result(
    termination: Mapping[str, Any], response: str, artifacts: tuple[Artifact, ...]
) -> BackendResult:
    end = termination_from_json(termination)
    status = status_of_termination(end)
    return BackendResult(
        status=status,
        termination=end,
        response=response,
        output=BackendOutput(
            text=response if isinstance(status, Completed) else None, artifacts=artifacts
        ),
        steps=1,
    )


def _waiting(asked: Sequence[RemoteTicket], response: str) -> BackendResult | None:
    """What people have to answer; None while it waits for work that is under way."""
    if not asked:
        return None
    questions = tuple(each.question for each in asked)
    message = questions[0].message
    logs_in = all(question.is_login for question in questions)
    return BackendResult(
        status=WaitingAuth(message) if logs_in else WaitingInput(message),
        response=response,
        output=BackendOutput(text=response or None),
        steps=1,
        questions=questions,
    )
