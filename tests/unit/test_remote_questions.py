"""Questions of a remote run: their response schemas are used if we support them."""

from typing import Any

import pytest

from app.backends.remote_holdfast.run import RemoteRunView
from app.domain.json_values import Json, JsonObject


class DroppingEmitter:
    """An emitter that drops all events of a turn."""

    async def bind(self, binding: JsonObject) -> None: ...

    def text(self, delta: str) -> None: ...

    def start_over(self, reason: str) -> None: ...

    def activity(self, activity_type: str, content: Json) -> None: ...

    async def wait_for_capacity(self) -> None: ...


def snapshot(response_schema: Any) -> dict[str, Any]:
    ticket = {
        "run_id": "r1",
        "id": "t1",
        "kind": "input",
        "message": "How many?",
        "tool_name": "count",
        "allowed_actions": ["respond", "reject"],
        "response_schema": response_schema,
    }
    run = {"run_id": "r1", "status": "waiting", "waiting": {"tickets": [ticket]}}
    return {"run": run, "last_event_id": 3, "open_text": ""}


def asked(response_schema: Any) -> Any:
    remote_view = RemoteRunView(DroppingEmitter())
    result = remote_view.apply_snapshot(snapshot(response_schema))
    assert result is not None
    [question] = result.questions
    return question.response_schema


@pytest.mark.parametrize("schema", [None, {"type": "integer"}, {}])
def test_a_schema_of_an_answer_is_kept(schema: Any) -> None:
    assert asked(schema) == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "whole"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/missing"},
        {"allOf": [{"pattern": f"(?={n})"} for n in range(50)]},
    ],
)
def test_a_schema_that_we_do_not_support_is_left_to_the_remote(schema: Any) -> None:
    assert asked(schema) is None
