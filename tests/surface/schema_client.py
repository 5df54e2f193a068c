"""Sends generated requests, valid or invalid, and checks that the responses conform to the document."""

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

from tests.surface.document import DOCUMENT
from tests.surface.tenant_data import TEXT, TenantData

SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CONFORMS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
STREAM = "text/event-stream"
_MAX_WAIT_SECONDS = 1
_TIMEOUT = 60
_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "expect", "upgrade"})
"""Headers of HTTP itself. A generated one makes the request malformed before any operation gets it."""

Case: TypeAlias = schemathesis.Case[Any]
Operation: TypeAlias = schemathesis.APIOperation[Any, Any, Any, Any]
Aim = Callable[[Sequence[str]], str]
"""Chooses the id that a request names."""


@dataclass(slots=True)
class SchemaClient:
    """Sends requests with one key, and checks that responses show nothing of the other tenant."""

    base: str
    key: str
    others: TenantData
    session: requests.Session = field(default_factory=requests.Session)
    answers: Counter[int] = field(default_factory=Counter)

    @property
    def with_key(self) -> dict[str, Any]:
        return {"headers": {"Authorization": f"Bearer {self.key}"}, "timeout": _TIMEOUT}

    def ask(self, case: Case, *, is_wrong: bool, accept: str = "*/*") -> None:
        for name in [each for each in case.headers or () if each.lower() in _FRAMING]:
            del case.headers[name]
        headers = {**self.with_key["headers"], "Accept": accept}
        request = case.as_transport_kwargs(base_url=self.base, headers=headers)
        with self.session.request(
            **request, stream=True, timeout=_TIMEOUT, allow_redirects=False
        ) as response:
            if response.headers.get("content-type", "").startswith(STREAM):
                self.answers[response.status_code] += 1
                self._check_stream(case, response)
            elif response.status_code == 431:
                # An address may be too long for any operation. The document describes it once.
                assert response.json()["code"] == "headers_too_large"
            else:
                found = schemathesis.Response.from_requests(response, verify=True)
                # A 413 is a refusal, too: the server doesn't validate a body above the size limit.
                must_refuse = is_wrong and response.status_code != 413
                self.check(case, found, *([negative_data_rejection] if must_refuse else []))

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
            # A FailureGroup is no Exception, and would end the whole test run.
            raise AssertionError(failures.message) from None

    def _check_stream(self, case: Case, response: requests.Response) -> None:
        """Check only the first bytes, because a stream may never end."""
        assert response.status_code == 200
        assert STREAM in _content(case, 200)
        first: bytes = next(response.iter_content(None))
        assert first.startswith(b"retry: ")


def aim(case: Case, tenant_data: TenantData, choose: Aim) -> None:
    """Put existing ids into a generated request."""
    for name in list(case.path_parameters or ()):
        if known := tenant_data.ids.get(name):
            case.path_parameters[name] = choose(known)
    aim_body(case, tenant_data, choose)


def aim_body(case: Case, tenant_data: TenantData, choose: Aim) -> None:
    _aim_within(case.body, tenant_data, choose)


def limit_wait(case: Case) -> None:
    """Shorten the `wait` of a request."""
    wait = (case.query or {}).get("wait")
    if isinstance(wait, int) and wait > _MAX_WAIT_SECONDS:
        case.query["wait"] = _MAX_WAIT_SECONDS


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


def _aim_within(value: Any, tenant_data: TenantData, choose: Aim) -> None:
    if isinstance(value, list):
        for item in value:
            _aim_within(item, tenant_data, choose)
    elif isinstance(value, dict):
        for name, item in value.items():
            known = TEXT if name == "content" else tenant_data.ids.get(name.removeprefix("parent_"))
            if known and isinstance(item, str):
                value[name] = choose(known)
            else:
                _aim_within(item, tenant_data, choose)
