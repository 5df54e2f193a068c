"""The checker of the chaos trials: it finds nothing in a correct history, and each seeded fault by its rule."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from app.domain.runs.runs import LIFECYCLE
from tests.journeys.chaos.checker import check
from tests.journeys.chaos.checks_of_rate_limits import check_rate_limits
from tests.journeys.chaos.history import NOT_OURS, Frame, History, Kind, Operation, ReaderRecord
from tests.journeys.chaos.plan import Break, plan
from tests.journeys.chaos.truth import Row, Truth

RUN, THREAD, OTHER = "the run", "the thread", "another run"
NATURAL = {"type": "natural_end"}
RESULT = {"response": "It is done."}
DONE = {"run_id": RUN, "status": "done"}


@dataclass
class Trial:
    """A history and the rows that match it; each seeded fault changes one of them."""

    history: History
    truth: Truth

    def rules(self) -> set[str]:
        return {violation.rule for violation in check(self.history, self.truth)}

    def rows(self, **changed: Any) -> None:
        self.truth = replace(self.truth, **changed)


def event(seq: int, kind: str, step: int | None = None, **more: Any) -> Row:
    at = {} if step is None else {"step": step}
    return {
        "seq": seq,
        "thread_id": THREAD,
        "run_id": RUN,
        "event_type": kind,
        **at,
        **more,
    }


def log() -> list[Row]:
    return [
        event(1, "run_created"),
        event(2, "run_start"),
        event(3, "step_start", 1),
        event(4, "text_delta", 1, delta="It is "),
        event(5, "text_delta", 1, delta="done."),
        event(6, "inference_complete", 1),
        event(7, "message_done", 1, message={"role": "assistant"}),
        event(8, "state_snapshot", 1, snapshot={"extensions": {}}),
        event(9, "step_end", 1),
        event(10, "state_snapshot", snapshot={"extensions": {LIFECYCLE: DONE}}),
        event(11, "run_finish", termination=NATURAL, result=RESULT),
    ]


def operation(
    kind: Kind, status: int, body: Row, answer_body: Row, mark: str = "p0.1"
) -> Operation:
    asked = Operation(mark=mark, kind=kind, path="/v1/…", body=body, tries=1)
    asked.answered(status, answer_body)
    return asked


def sound() -> Trial:
    """A client started a run, followed it and approved its payment; another client was refused."""
    received = [Frame(at=one["seq"], event={**one, "ts": "now"}, in_log=True) for one in log()]
    answer = {"ticket_id": "k", "action": "approve"}
    history = History(
        operations=[
            operation(Kind.START, 202, {}, {"id": RUN}),
            operation(Kind.START, 409, {}, {"code": "thread_busy"}, "p1.1"),
            operation(
                Kind.DECIDE, 200, {"decisions": [answer]}, {"results": [{"decision_id": "d"}]}
            ),
            operation(Kind.CANCEL, 200, {}, {"id": RUN, "status": "done"}),
            operation(Kind.PAUSE, 200, {}, {"id": RUN, "status": "done", "pause": None}),
            operation(Kind.RESUME, 200, {}, {"id": RUN, "status": "done", "pause": None}),
        ],
        reader_records=[
            ReaderRecord(path=f"/v1/runs/{RUN}", frames=received, connections=2, ended=True),
            ReaderRecord(
                path=f"/v1/threads/{THREAD}", frames=list(received), connections=9, ended=True
            ),
        ],
        settled_in=0.1,
    )
    truth = Truth(
        runs=[
            {
                "id": RUN,
                "thread_id": THREAD,
                "status": "done",
                "termination": NATURAL,
                "retry_of": None,
                "final_output": "It is done.",
                "is_cancel_requested": False,
                "mark": "p0.1",
                "root_run_id": RUN,
                "parent_run_id": None,
                "depth": 0,
                "cancelled_at": None,
                "finished_at": 10.0,
            }
        ],
        events=log(),
        messages=[{"thread_id": THREAD, "seq": 1, "role": "user", "content": "[p0.1] Pay."}],
        tickets=[
            {
                "id": "k",
                "run_id": RUN,
                "call_id": "c",
                "kind": "approval",
                "status": "decided",
                "is_applied": True,
                "decision_id": "d",
                "action": "approve",
                "payload": None,
            }
        ],
        effects=[effect()],
    )
    return Trial(history, truth)


def effect(**changed: Any) -> Row:
    done = {"tool": "pay", "what": "p0.1/0", "key": "the key", "run_id": RUN, "call_id": "c"}
    return {**done, **changed}


def test_a_sound_history_has_no_violation() -> None:
    trial = sound()
    assert check(trial.history, trial.truth) == []


# --- streams --------------------------------------------------------------------------------------


def frames(trial: Trial) -> list[Frame]:
    return trial.history.reader_records[0].frames


def receives_a_frame_twice(trial: Trial) -> None:
    frames(trial).insert(4, frames(trial)[3])


def misses_a_frame_of_the_thread(trial: Trial) -> None:
    del trial.history.reader_records[1].frames[3]


def misses_a_frame(trial: Trial) -> None:
    del frames(trial)[3]


def misses_the_last_frame(trial: Trial) -> None:
    del frames(trial)[-1]


def receives_a_rolled_back_event(trial: Trial) -> None:
    frames(trial)[3].event["delta"] = "It was "


def receives_an_event_before_its_commit(trial: Trial) -> None:
    frames(trial)[3] = replace(frames(trial)[3], in_log=False)


def never_receives_the_end(trial: Trial) -> None:
    trial.history.reader_records[0].ended = False


# --- logs -----------------------------------------------------------------------------------------


def with_events(trial: Trial, events: list[Row]) -> None:
    trial.history.reader_records.clear()
    trial.rows(events=[{**one, "seq": seq} for seq, one in enumerate(events, 1)])


def a_fenced_worker_writes_another_event(trial: Trial) -> None:
    events = log()
    with_events(trial, [*events[:6], event(0, "text_delta", 1, delta="done."), *events[6:]])


def a_fenced_worker_repeats_a_delta(trial: Trial) -> None:
    events = log()
    with_events(trial, [*events[:5], events[4], *events[5:]])


def two_runs_execute(trial: Trial) -> None:
    events = log()
    others = [{**one, "run_id": OTHER} for one in (events[0], events[1], events[-1])]
    with_events(trial, [*events[:5], *others, *events[5:]])


def ends_with_another_termination(trial: Trial) -> None:
    events = log()
    events[-1] = {**events[-1], "termination": {"type": "error", "code": "worker_lost"}}
    with_events(trial, events)


def ends_without_run_finish(trial: Trial) -> None:
    with_events(trial, log()[:-1])


# --- requests -------------------------------------------------------------------------------------


def breaks_the_server(trial: Trial) -> None:
    trial.history.operations[1].answered(500, {"code": "internal_error"})


def answers_without_json(trial: Trial) -> None:
    trial.history.operations[1].answered(503, {"code": NOT_OURS, "text": "Go away"})


def loses_a_message(trial: Trial) -> None:
    trial.rows(messages=[])


def doubles_a_message(trial: Trial) -> None:
    trial.rows(messages=[*trial.truth.messages, *trial.truth.messages])


def stores_a_refused_message(trial: Trial) -> None:
    refused = {"thread_id": THREAD, "seq": 2, "role": "user", "content": "[p1.1] Hello."}
    trial.rows(messages=[*trial.truth.messages, refused])


def ignores_an_input(trial: Trial) -> None:
    trial.rows(inputs=[{"run_id": RUN, "status": "retracted", "message": "[p0.1] Pay."}])


def starts_twice(trial: Trial) -> None:
    trial.rows(runs=[*trial.truth.runs, {**trial.truth.runs[0], "id": OTHER, "status": "waiting"}])


def loses_a_run(trial: Trial) -> None:
    trial.history.operations[0].response["id"] = OTHER


def loses_a_decision(trial: Trial) -> None:
    trial.rows(tickets=[{**trial.truth.tickets[0], "decision_id": "another one"}])


def never_applies_a_decision(trial: Trial) -> None:
    trial.rows(tickets=[{**trial.truth.tickets[0], "is_applied": False}])


def leaves_a_ticket_open(trial: Trial) -> None:
    trial.rows(tickets=[{**trial.truth.tickets[0], "status": "open"}])


def loses_a_cancel_request(trial: Trial) -> None:
    trial.history.operations[3].status = 202


# --- tools ----------------------------------------------------------------------------------------


def of_pause(trial: Trial, status: int, answer_body: Row) -> None:
    answer_body = {"id": RUN, "pause": None, "status": "waiting", **answer_body}
    trial.history.operations.append(operation(Kind.PAUSE, status, {}, answer_body, "p2.1"))


def loses_a_pause(trial: Trial) -> None:
    of_pause(trial, 202, {"pause": {"reason": "p2.1"}})


def pauses_twice(trial: Trial) -> None:
    of_pause(trial, 202, {})
    again = [event(seq, "pause_requested", reason="p2.1") for seq in (11, 12)]
    trial.rows(events=[*trial.truth.events, *again])


def executes_while_paused(trial: Trial) -> None:
    of_pause(trial, 200, {"status": "running"})


def resumes_without_effect(trial: Trial) -> None:
    answer_body = {"id": RUN, "pause": {"reason": "p2.1"}, "status": "waiting"}
    trial.history.operations.append(operation(Kind.RESUME, 200, {}, answer_body, "p2.2"))


def pays_twice(trial: Trial) -> None:
    trial.rows(effects=[effect(), effect()])


def pays_without_approval(trial: Trial) -> None:
    trial.rows(tickets=[{**trial.truth.tickets[0], "action": "reject"}])


def pays_under_another_key(trial: Trial) -> None:
    trial.rows(effects=[effect(tool="put"), effect(tool="put", key="another one")])


def pays_what_was_edited(trial: Trial) -> None:
    edited = {**trial.truth.tickets[0], "action": "edit", "payload": {"what": "less"}}
    trial.rows(tickets=[edited])


# --- runs -----------------------------------------------------------------------------------------


def never_settles(trial: Trial) -> None:
    trial.history.settled_in = None


def runs_for_ever(trial: Trial) -> None:
    trial.rows(runs=[{**trial.truth.runs[0], "status": "running", "termination": None}])


def has_an_unknown_parent(trial: Trial) -> None:
    trial.rows(runs=[{**trial.truth.runs[0], "parent_run_id": OTHER, "parent_call_id": "c"}])


def breaks_a_row(trial: Trial) -> None:
    trial.truth = replace(trial.truth, broken_rows={"a thread's messages have a gap": [THREAD]})


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (receives_a_frame_twice, "a frame is repeated or out of order"),
        (misses_a_frame, "a frame is missing"),
        (misses_a_frame_of_the_thread, "a frame is missing"),
        (misses_the_last_frame, "a frame is missing"),
        (receives_a_rolled_back_event, "a frame that was seen isn't in the log"),
        (receives_an_event_before_its_commit, "a frame is seen before it is durable"),
        (never_receives_the_end, "a stream never ends"),
        (a_fenced_worker_writes_another_event, "events out of order"),
        (a_fenced_worker_repeats_a_delta, "the streamed text differs from the final output"),
        (two_runs_execute, "two runs execute on a thread"),
        (ends_with_another_termination, "the end event differs from the run's record"),
        (ends_without_run_finish, "activations and their ends don't match"),
        (breaks_the_server, "a request breaks the server"),
        (answers_without_json, "an answer isn't JSON"),
        (loses_a_message, "an accepted message is lost"),
        (doubles_a_message, "a message is in the log twice"),
        (stores_a_refused_message, "a refused message is stored"),
        (ignores_an_input, "a run ends without reading its message"),
        (starts_twice, "a start makes two runs"),
        (loses_a_run, "an accepted run is lost"),
        (loses_a_decision, "an answered decision is not the winner"),
        (never_applies_a_decision, "a decision is never used"),
        (leaves_a_ticket_open, "a run ends with a ticket open"),
        (loses_a_cancel_request, "a cancel request is lost"),
        (loses_a_pause, "a pause is lost"),
        (pauses_twice, "a pause is requested twice"),
        (executes_while_paused, "a pause is answered as settled while the run executes"),
        (resumes_without_effect, "a resume leaves a pause"),
        (pays_twice, "a side effect happens more often than was allowed"),
        (pays_without_approval, "a side effect happens more often than was allowed"),
        (pays_under_another_key, "a call has two keys"),
        (pays_what_was_edited, "an edited call runs with its old arguments"),
        (never_settles, "not every run finishes"),
        (runs_for_ever, "a run never ends"),
        (has_an_unknown_parent, "a child without a request"),
        (breaks_a_row, "a thread's messages have a gap"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_seeded_fault_is_found(planted: Callable[[Trial], None], rule: str) -> None:
    trial = sound()
    planted(trial)
    assert rule in trial.rules()


def test_a_repeated_request_may_be_refused_though_its_first_try_took_effect() -> None:
    """Only a message whose first try was refused must not be stored."""
    trial = sound()
    trial.history.operations[1].tries = 2
    stores_a_refused_message(trial)
    assert trial.rules() == set()


def test_a_plan_depends_on_its_seed_only_and_has_every_fault() -> None:
    planned = plan(7, 40.0, 3)
    assert planned == plan(7, 40.0, 3) != plan(8, 40.0, 3)
    assert {one.what for one in planned} == set(Break)
    assert planned == sorted(planned, key=lambda one: one.at)


def activation(kind: str, at: int, until: int | None = None, **more: Any) -> Row:
    reason = "rate_limit" if kind == "run_finish" else None
    return {
        "run_id": RUN,
        "event_type": kind,
        "ts": at,
        "reason": reason,
        "until": until,
        "tickets": 0,
        **more,
    }


@pytest.mark.parametrize(
    ("resumed_at", "wait", "rule"),
    [
        (30, {}, None),
        (29, {}, "a run resumes before its time"),
        (30, {"until": None}, "a rate limit without an end"),
        (30, {"tickets": 1}, "a rate limit wait has tickets"),
    ],
)
def test_a_wait_for_a_rate_limit_must_last_its_time(
    resumed_at: int, wait: Row, rule: str | None
) -> None:
    rows = [
        activation("run_finish", 10, **{"until": 30, **wait}),
        activation("run_start", resumed_at),
    ]
    found = {violation.rule for violation in check_rate_limits(Truth(activations=rows))}
    assert found == ({rule} if rule else set())


def test_a_cancel_may_end_a_wait_for_a_rate_limit_early() -> None:
    rows = [activation("run_finish", 10, 30), activation("run_start", 11)]
    runs = [{"id": RUN, "is_cancel_requested": True}]
    assert list(check_rate_limits(Truth(activations=rows, runs=runs))) == []
