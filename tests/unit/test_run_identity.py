"""The ids of a run in its events and in its answers."""

from app.domain.ids import RunId
from app.domain.runs.identity import run_identity, session_id, waits_since
from app.domain.runs.runs import Lineage
from app.domain.structs import replace
from tests.support.records import a_record

RECORD = a_record(attempt=2)


def test_a_session_is_one_attempt_of_a_run() -> None:
    assert session_id(RECORD) == "run:2"
    assert run_identity(RECORD)["session_id"] == "run:2"


def test_a_run_waits_since_its_delivery_or_else_since_its_session() -> None:
    assert waits_since(RECORD) == "run:2"
    assert waits_since(replace(RECORD, dispatch_id="delivery")) == "delivery"


def test_a_run_with_a_parent_comes_from_an_agent() -> None:
    assert run_identity(RECORD)["origin"] == "user"
    child = replace(RECORD, lineage=Lineage(RunId("root"), parent_run_id=RunId("parent")))
    assert run_identity(child)["origin"] == "subagent"
    assert run_identity(child)["parent_run_id"] == "parent"


def test_the_context_of_a_request_is_not_shown() -> None:
    record = replace(RECORD, request={"context": {"customer": 7}, "on_limit": "ask"})
    assert record.context == {"customer": 7}
    assert record.shown_request == {"on_limit": "ask"}
