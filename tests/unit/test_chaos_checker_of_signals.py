"""The checker of the chaos trials, for signals: it finds each seeded fault by its rule, and no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.journeys.chaos.checks_of_signals import AFTERMATH, check_signals
from tests.journeys.chaos.history import History, Kind, Operation
from tests.journeys.chaos.prompts import event_keys
from tests.journeys.chaos.truth import Row, Truth

RUN, KEY, SIGNAL = "the run", "p0.1/0", "p0.2"


class Trial:
    """A call that received its event, and an event that came before any call."""

    def __init__(self) -> None:
        early = _signal("p0.3", "answered", answer="kept", key="p0.9/0")
        self.history = History(
            operations=[
                _asked(SIGNAL, "answered", [{"id": "t1", "outcome": "answered"}]),
                _asked(SIGNAL, "answered", [{"id": "t1", "outcome": "answered"}]),
                _asked("p0.3", "kept", []),
            ]
        )
        self.truth = Truth(
            runs=[{"id": RUN, "termination": {"type": "natural_end"}}],
            signals=[_signal(SIGNAL, "answered", answer="answered"), early],
            tickets=[
                _ticket("t1", "c1", SIGNAL),
                _ticket("t2", "c2", "p0.3", event_key="p0.9/0"),
            ],
            effects=[_effect("c1", SIGNAL), _effect("c2", "p0.3")],
        )

    def rows(self, **changed: Any) -> None:
        self.truth = replace(self.truth, **changed)

    def rules(self) -> set[str]:
        return {violation.rule for violation in check_signals(self.history, self.truth)}


def _asked(id: str, status: str, tickets: list[Row]) -> Operation:
    body = {"signal_id": id, "name": "happened", "key": KEY, "payload": id}
    operation = Operation(mark=id, kind=Kind.SIGNAL, path="/v1/signals", body=body, tries=1)
    operation.answered(200, {"id": id, "status": status, "tickets": tickets})
    return operation


def _signal(id: str, status: str, *, answer: str | None, key: str = KEY) -> Row:
    return {"id": id, "key": key, "status": status, "response_status": answer, "created_at": 1.0}


def _ticket(id: str, call: str, signal: str, *, event_key: str = KEY) -> Row:
    return {
        "id": id,
        "run_id": RUN,
        "call_id": call,
        "kind": "event",
        "status": "decided",
        "decision_id": f"signal:{signal}",
        "action": "respond",
        "payload": signal,
        "event_key": event_key,
        "decided_at": 100.0,
    }


def _effect(call: str, payload: str) -> Row:
    return {"tool": "receive", "what": payload, "key": call, "run_id": RUN, "call_id": call}


def test_a_sound_history_has_no_violation() -> None:
    assert Trial().rules() == set()


def loses_a_signal(trial: Trial) -> None:
    trial.rows(signals=trial.truth.signals[1:])


def leaves_a_signal_unmatched(trial: Trial) -> None:
    trial.rows(signals=[*trial.truth.signals, _signal("p0.4", "delivering", answer=None)])


def answers_twice(trial: Trial) -> None:
    trial.history.operations[1].response["tickets"] = []


def stores_no_answer(trial: Trial) -> None:
    trial.rows(tickets=[{**trial.truth.tickets[0], "decision_id": "d"}, trial.truth.tickets[1]])


def uses_a_stored_signal_twice(trial: Trial) -> None:
    trial.rows(tickets=[*trial.truth.tickets, _ticket("t3", "c3", "p0.3")])


def consumes_a_signal(trial: Trial) -> None:
    trial.rows(signals=[*trial.truth.signals, _signal("p0.4", "answered", answer="answered")])


def ignores_a_signal(trial: Trial) -> None:
    late = _ticket("t3", "c3", f"{AFTERMATH}t3")
    trial.rows(
        signals=[*trial.truth.signals, _signal("p0.4", "kept", answer="kept")],
        tickets=[*trial.truth.tickets, late],
        effects=[*trial.truth.effects, _effect("c3", f"{AFTERMATH}t3")],
    )


def acts_twice(trial: Trial) -> None:
    trial.rows(effects=[*trial.truth.effects, _effect("c1", SIGNAL)])


def acts_early(trial: Trial) -> None:
    trial.rows(effects=[*trial.truth.effects, _effect("c3", SIGNAL)])


def acts_with_another_payload(trial: Trial) -> None:
    trial.rows(effects=[_effect("c1", "p0.3"), trial.truth.effects[1]])


def never_acts(trial: Trial) -> None:
    trial.rows(effects=trial.truth.effects[1:])


@pytest.mark.parametrize(
    ("planted", "rule"),
    [
        (loses_a_signal, "an accepted signal is lost"),
        (leaves_a_signal_unmatched, "a signal is never delivered"),
        (answers_twice, "a signal has two answers"),
        (stores_no_answer, "an answered signal did not decide its ticket"),
        (uses_a_stored_signal_twice, "a stored signal is used twice"),
        (consumes_a_signal, "an answered signal was used by no call"),
        (ignores_a_signal, "a stored signal is not used"),
        (acts_twice, "a call acts more often than it received events"),
        (acts_early, "a call acts more often than it received events"),
        (acts_with_another_payload, "a call acts with a payload that it didn't receive"),
        (never_acts, "a call doesn't act although it received its event"),
    ],
    ids=lambda given: given.__name__ if callable(given) else "",
)
def test_a_seeded_fault_is_found(planted: Callable[[Trial], None], rule: str) -> None:
    trial = Trial()
    planted(trial)
    assert rule in trial.rules()


def test_the_keys_of_a_prompt_are_known() -> None:
    text = 'CALLS 2 receive {"what": "p0.1/0"} CALL put {"what": "p0.1/1"}'
    assert event_keys(text) == ["p0.1/0"]
