"""A run of another Holdfast as its events tell of it: said on as they come, and what it came to."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import httpx2

from app.backends.base import Voice
from app.domain.backends import (
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
from app.domain.decisions import Action
from app.domain.json_values import JsonObject, as_object
from app.domain.terminations import termination_from_json
from app.domain.tickets import TicketKind

PROGRESS = "remote-run-progress"


@dataclass(slots=True)
class RemoteRunHeard:
    voice: Voice
    last_id: int = 0
    _has_spoken: bool = False

    async def take(self, sse: httpx2.ServerSentEvent) -> BackendResult | None:
        """One frame; the result, if it is the one that tells it."""
        event = as_object(sse.json()) or {}
        if sse.id:
            self.last_id = int(sse.id)
        match event.get("event_type"):
            case "step_start":
                self._start_over("next_step")
            case "stream_reset":
                self._start_over(str(event["reason"]))
            case "text_delta":
                self._has_spoken = True
                self.voice.text(event["delta"])
                await self.voice.room()
            case "tool_call_start":
                self._show(event, tool=event["name"], status="running")
            case "tool_call_done":
                self._show(event, call_id=event["id"], status=event["outcome"])
            case "run_finish":
                return self._finished(event)
        return None

    def take_snapshot(self, snapshot: JsonObject) -> BackendResult | None:
        """Where the run stands, when its events from the last one on can't be had, or there are none."""
        run = snapshot["run"]
        self.last_id = max(self.last_id, int(snapshot["last_event_id"]))
        if run["status"] == "done":
            return _result(run["termination"], run["final_output"] or "", ())
        if run["status"] == "waiting":
            return _waiting(run["waiting"], "")
        self._start_over("gap")
        if snapshot["open_text"]:
            self._has_spoken = True
            self.voice.text(snapshot["open_text"])
        return None

    def bound(self, result: BackendResult, binding: JsonObject) -> BackendResult:
        """The result, with where the next turn goes on."""
        return replace(result, binding={**binding, "after": self.last_id})

    def _start_over(self, reason: str) -> None:
        if self._has_spoken:
            self._has_spoken = False
            self.voice.starts_over(reason)

    def _show(self, event: Mapping[str, Any], **more: str) -> None:
        shown = {"schema": f"{PROGRESS}.v1", "run_id": event["run_id"], **more}
        self.voice.activity(PROGRESS, shown)

    def _finished(self, event: Mapping[str, Any]) -> BackendResult | None:
        result = event.get("result") or {}
        output = output_from_json(result.get("output") or {})
        response = str(result.get("response") or "")
        if event["termination"]["type"] == "suspended":
            return _waiting(event["waiting"], response)
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


def _waiting(waiting: Mapping[str, Any], response: str) -> BackendResult | None:
    """What it waits for from people; None while it waits for work of its own."""
    asked = [each for each in waiting["tickets"] if each["kind"] != TicketKind.CHILD.value]
    if not asked:
        return None
    questions = tuple(_question(ticket) for ticket in asked)
    message = questions[0].message
    logs_in = all(question.is_login for question in questions)
    return BackendResult(
        status=WaitingAuth(message) if logs_in else WaitingInput(message),
        response=response,
        output=BackendOutput(text=response or None),
        steps=1,
        questions=questions,
    )


def _question(ticket: Mapping[str, Any]) -> RemoteQuestion:
    """Arguments are edited where the tool is known, so not here."""
    actions = frozenset(Action(each) for each in ticket["allowed_actions"]) - {Action.EDIT}
    return RemoteQuestion(
        name=ticket["ticket_id"],
        message=ticket["message"],
        is_login=ticket["kind"] == TicketKind.AUTH.value,
        tool_name=ticket["tool_name"],
        arguments=ticket.get("arguments"),
        actions=actions,
        response_schema=ticket.get("response_schema"),
    )
