"""Follows a run of another Holdfast, emits its events as the run's own, and builds its result.

The event of a suspension doesn't contain what the run waits for, so its record is read. Questions for people
end the turn. While the run's children execute, the turn continues.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx2

from app.backends.base import TurnEmitter
from app.backends.remote_holdfast.responses import read
from app.backends.remote_holdfast.tickets import questions_of
from app.domain.agents.backend_results import (
    Artifact,
    BackendOutput,
    BackendResult,
    Completed,
    RemoteQuestion,
    WaitingAuth,
    WaitingInput,
    output_from_json,
    status_of_termination,
)
from app.domain.json_values import JsonObject, as_object
from app.domain.runs.terminations import termination_from_json
from app.domain.structs import replace

PROGRESS = "remote-run-progress"


@dataclass(slots=True)
class RemoteRunView:
    emitter: TurnEmitter
    last_id: int = 0
    is_suspended: bool = False
    """Whether the run is suspended, as far as known. It may wait for people or for its children."""
    needs_snapshot: bool = False
    """Whether the run is suspended and its record must be read again."""
    _run_id: str = ""
    _response: str = ""
    _has_text: bool = False

    def continue_from(self, run_id: str, last_id: int) -> None:
        """Continue after an event that suspended the run."""
        self._run_id = run_id
        self.last_id, self.is_suspended = last_id, last_id > 0

    async def apply_event(self, sse: httpx2.ServerSentEvent) -> BackendResult | None:
        """Apply one event. Returns the result if the event ends the turn."""
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
                self._has_text = True
                self.emitter.text(event["delta"])
                await self.emitter.wait_for_capacity()
            case "tool_call_start":
                self._show(tool=event["name"], status="running")
            case "tool_call_done":
                result = event["result"]
                shown = {name: result[name] for name in ("status", "outcome") if name in result}
                self._show(tool_call_id=event["tool_call_id"], **shown)
            case "activity_snapshot" | "ticket_opened":
                self.needs_snapshot = self.is_suspended
            case "run_start":
                self.is_suspended = False
            case "run_finish":
                return self._finished(event)
        return None

    def apply_record(self, run: JsonObject) -> BackendResult | None:
        """Apply the record of a suspended run; later changes come as events."""
        self.needs_snapshot = False
        if run["status"] != "waiting":
            self.is_suspended = False
            return None
        return _waiting(questions_of(run), self._response)

    def apply_snapshot(self, snapshot: JsonObject) -> BackendResult | None:
        """Apply a snapshot, because events after the last known one are missing."""
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
            self._has_text = True
            self.emitter.text(snapshot["open_text"])
        return None

    def bound(self, result: BackendResult, binding: JsonObject) -> BackendResult:
        """Return the result with the binding from which the next turn continues."""
        return replace(result, binding={**binding, "after": self.last_id})

    def _start_over(self, reason: str) -> None:
        if self._has_text:
            self._has_text = False
            self.emitter.start_over(reason)

    def _show(self, **more: str) -> None:
        shown = {"schema": f"{PROGRESS}.v1", "run_id": self._run_id, **more}
        self.emitter.activity(PROGRESS, shown)

    def _finished(self, event: Mapping[str, Any]) -> BackendResult | None:
        result = event.get("result") or {}
        output = output_from_json(result.get("output") or {})
        response = str(result.get("response") or "")
        if event["termination"]["type"] == "suspended":
            self.is_suspended = self.needs_snapshot = True
            self._response = response
            return None
        # The ids of files there mean nothing here.
        made = tuple(replace(each, file_id=None) for each in output.artifacts)
        return _result(event["termination"], response, made)


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


def _waiting(questions: Sequence[RemoteQuestion], response: str) -> BackendResult | None:
    """The questions for people; None while the run waits only for other work."""
    if not questions:
        return None
    message = questions[0].message
    logs_in = all(question.is_login for question in questions)
    return BackendResult(
        status=WaitingAuth(message) if logs_in else WaitingInput(message),
        response=response,
        output=BackendOutput(text=response or None),
        steps=1,
        questions=tuple(questions),
    )
