"""Crash evidence on a ticket: it shows only known facts about the lost worker."""

import pytest

from app.domain.ids import WorkerId
from app.domain.tools.crash_evidence import CrashEvidence, LostWorker, evidence_to_json
from tests.support.records import AT

WORKER = LostWorker(WorkerId("w"), "host", 7, AT)


@pytest.mark.parametrize(
    "trace, body",
    [
        (CrashEvidence(), {}),
        (CrashEvidence(streamed="half of"), {"streamed": "half of"}),
        (CrashEvidence(progress={}), {"progress": {}}),
        (CrashEvidence(progress={"done": 1}), {"progress": {"done": 1}}),
        (
            CrashEvidence(WORKER),
            {
                "worker": {
                    "id": "w",
                    "host": "host",
                    "pid": 7,
                    "heartbeat_at": "2030-01-02T03:04:05.000Z",
                }
            },
        ),
        (
            CrashEvidence(LostWorker(WorkerId("w"), None, None, None)),
            {"worker": {"id": "w", "host": None, "pid": None, "heartbeat_at": None}},
        ),
    ],
)
def test_evidence_omits_unknown_fields(trace: CrashEvidence, body: dict[str, object]) -> None:
    assert evidence_to_json(trace) == body
