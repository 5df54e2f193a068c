"""Metrics: every label has values that the operator or the code chooses, so their number is bounded."""

from prometheus_client.metrics import MetricWrapperBase

from app import telemetry

CHOSEN_BY_THE_OPERATOR = {"agent", "model", "server", "tool"}
"""Names of the agents file. A tool that isn't in it is counted as `frontend` or `unknown`."""
CHOSEN_BY_THE_CODE = {
    "action",
    "origin",
    "job",
    "failure",
    "followup",
    "kind",
    "method",
    "outcome",
    "plan",
    "read",
    "reason",
    "route",
    "status",
    "termination",
    "transport",
}


def test_no_label_takes_values_of_clients() -> None:
    metrics = [value for value in vars(telemetry).values() if isinstance(value, MetricWrapperBase)]
    assert len(metrics) > 20
    labels = {name for metric in metrics for name in metric._labelnames}
    assert labels == CHOSEN_BY_THE_OPERATOR | CHOSEN_BY_THE_CODE
