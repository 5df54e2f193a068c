"""Requests that the document allows or forbids, sent; answers that must be as it says."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import requests
import schemathesis
from schemathesis import CheckFunction
from schemathesis.checks import not_a_server_error
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from tests.surface.belongings import SAID, Belongings
from tests.surface.document import DOCUMENT

SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CONFORMS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAM = "text/event-stream"
_LONGEST_WAIT = 1
_TIMEOUT = 20

Case: TypeAlias = schemathesis.Case[Any]
Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]
Aim = Callable[[Sequence[str]], str]
"""Which of some ids is to be named in a request."""


@dataclass(slots=True)
class Asker:
    """Speaks with one key, and hears nothing of others."""

    base: str
    key: str
    others: Belongings
    session: requests.Session = field(default_factory=requests.Session)
    answers: Counter[int] = field(default_factory=Counter)

    @property
    def with_key(self) -> dict[str, Any]:
        return {"headers": {"Authorization": f"Bearer {self.key}"}, "timeout": _TIMEOUT}

    def ask(self, case: Case, *, is_wrong: bool, accept: str = "*/*") -> None:
        headers = {**self.with_key["headers"], "Accept": accept}
        wanted = case.as_transport_kwargs(base_url=self.base, headers=headers)
        with self.session.request(
            **wanted, stream=True, timeout=_TIMEOUT, allow_redirects=False
        ) as response:
            if response.headers.get("content-type", "").startswith(STREAM):
                self.answers[response.status_code] += 1
                self._hear(case, response)
            else:
                found = schemathesis.Response.from_requests(response, verify=True)
                self.check(case, found, *([negative_data_rejection] if is_wrong else []))

    def check(self, case: Case, response: schemathesis.Response, *more: CheckFunction) -> None:
        self.answers[response.status_code] += 1
        assert self.others.mark.encode() not in response.content
        try:
            case.validate_response(
                response,
                [*CONFORMS, *more],
                headers=self.with_key["headers"],
                transport_kwargs={"base_url": self.base},
            )
        except FailureGroup as failures:
            # A group of them is no Exception, and would end more than this test.
            raise AssertionError(failures.message) from None

    def _hear(self, case: Case, response: requests.Response) -> None:
        """A stream may never end: its first bytes say whether it is one."""
        assert response.status_code == 200
        assert STREAM in _content(case, 200)
        first: bytes = next(response.iter_content(None))
        assert first.startswith(b"retry: ")


def aim(case: Case, belongings: Belongings, choose: Aim) -> None:
    """Let a request that was made up be about something that there is."""
    path = case.operation.path
    for name in list(case.path_parameters or ()):
        if known := belongings.named(path, name):
            case.path_parameters[name] = choose(known)
    aim_body(case, belongings, choose)


def aim_body(case: Case, belongings: Belongings, choose: Aim) -> None:
    _aim_within(case.body, belongings, choose)


def be_quick(case: Case) -> None:
    """Nobody is waited for long."""
    wait = (case.query or {}).get("wait")
    if isinstance(wait, int) and wait > _LONGEST_WAIT:
        case.query["wait"] = _LONGEST_WAIT


def streams(case_of: Operation) -> bool:
    return STREAM in (
        kind
        for response in case_of.definition.raw["responses"].values()
        for kind in response.get("content", {})
    )


def _content(case: Case, status: int) -> Mapping[str, Any]:
    responses: Mapping[str, Any] = case.operation.definition.raw["responses"]
    content: Mapping[str, Any] = responses[str(status)].get("content", {})
    return content


def _aim_within(value: Any, belongings: Belongings, choose: Aim) -> None:
    if isinstance(value, list):
        for item in value:
            _aim_within(item, belongings, choose)
    elif isinstance(value, dict):
        for name, item in value.items():
            known = SAID if name == "content" else belongings.ids.get(name.removeprefix("parent_"))
            if known and isinstance(item, str):
                value[name] = choose(known)
            else:
                _aim_within(item, belongings, choose)
