"""All metrics of a process, and their text for `/metrics`."""

import os

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
SHARED_METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which the processes of one server keep their metrics. The metrics library reads it."""
_COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)

runs_started = Counter("holdfast_runs_started_total", "Runs started.", ["agent"])
runs_finished = Counter(
    "holdfast_runs_finished_total",
    "Activations that ended, by termination.",
    ["agent", "termination"],
)
runs_executing = Gauge(
    "holdfast_runs_executing",
    "Runs that this server is executing.",
    multiprocess_mode="livesum",
)
run_seconds = Histogram(
    "holdfast_activation_seconds",
    "Duration of activations, from claim to run_finish.",
    ["agent"],
    buckets=_SECONDS,
)
history_cache_bytes = Gauge(
    "holdfast_history_cache_bytes",
    "Bytes of messages of recent threads that are kept in memory; approximate.",
    multiprocess_mode="livesum",
)
encoded_messages_bytes = Gauge(
    "holdfast_encoded_messages_bytes",
    "Bytes of messages of recent requests whose JSON is kept in memory; approximate.",
    multiprocess_mode="livesum",
)
histories_read = Counter(
    "holdfast_histories_read_total",
    "Message logs read for a run: only new messages, all, or void after a rollback.",
    ["read"],
)
takeovers = Counter("holdfast_takeovers_total", "Runs taken over from a dead worker.")
ownership_lost = Counter(
    "holdfast_ownership_lost_total", "Runs that this process lost to another worker."
)
loop_blockages = Counter(
    "holdfast_loop_blockages_total", "Times the event loop was blocked for too long."
)
steps = Counter("holdfast_steps_total", "Steps completed.", ["agent"])
inference_seconds = Histogram(
    "holdfast_inference_seconds", "Duration of model calls.", ["model"], buckets=_SECONDS
)
tokens = Counter("holdfast_tokens_total", "Tokens, as reported by providers.", ["model", "kind"])
unpriced_requests = Counter(
    "holdfast_unpriced_requests_total",
    "Requests to models that have no known price.",
    ["model"],
)
inference_retries = Counter(
    "holdfast_inference_retries_total",
    "Retries of model calls, by the failure that caused them.",
    ["model", "failure"],
)
provider_data_refused = Counter(
    "holdfast_provider_data_refused_total",
    "Model calls repeated without signatures and encrypted reasoning, because the provider refused them.",
    ["model"],
)
stream_recoveries = Counter(
    "holdfast_stream_recoveries_total",
    "Interrupted model responses that were recovered, by recovery plan.",
    ["model", "plan"],
)
circuit_openings = Counter(
    "holdfast_circuit_openings_total",
    "Circuit breakers that opened after consecutive failures.",
    ["model"],
)
circuit_refusals = Counter(
    "holdfast_circuit_refusals_total", "Model calls refused by an open circuit breaker.", ["model"]
)
rate_limit_waits = Histogram(
    "holdfast_rate_limit_wait_seconds",
    "Rate-limit delays for which runs were suspended, by source: provider, breaker or plugin.",
    ["model", "origin"],
    buckets=(1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
)
tool_calls = Counter(
    "holdfast_tool_calls_total", "Tool calls that returned a result.", ["tool", "outcome"]
)
mcp_calls = Counter(
    "holdfast_mcp_calls_total",
    "Calls to MCP servers, by outcome: ok, error, input_required or failed.",
    ["server", "outcome"],
)
mcp_call_seconds = Histogram(
    "holdfast_mcp_call_seconds", "Duration of calls to MCP servers.", ["server"], buckets=_SECONDS
)
mcp_starts = Counter(
    "holdfast_mcp_starts_total",
    "Starts of MCP servers, by outcome: up or failed.",
    ["server", "outcome"],
)
signals = Counter("holdfast_signals_total", "Signals accepted, by status.", ["status"])
signal_tickets = Counter(
    "holdfast_signal_tickets_total",
    "Tickets that matched a signal, by outcome.",
    ["outcome"],
)
tasks_ended = Counter("holdfast_tasks_total", "Background tasks that ended.", ["tool", "outcome"])
tasks_executing = Gauge(
    "holdfast_tasks_executing",
    "Background tasks that this server is executing.",
    multiprocess_mode="livesum",
)
followups_failed = Counter(
    "holdfast_followups_failed_total", "Failed attempts of follow-ups.", ["followup"]
)
followups_given_up = Counter(
    "holdfast_followups_given_up_total",
    "Follow-ups given up after all attempts failed.",
    ["followup"],
)
summaries = Counter(
    "holdfast_summaries_total", "Summaries of old messages, by outcome.", ["outcome"]
)
queue_delay = Histogram(
    "holdfast_queue_delay_seconds",
    "Time a delivery was due before it was claimed.",
    buckets=_SECONDS,
)
flush_seconds = Histogram("holdfast_flush_seconds", "Duration of event flushes.", buckets=_SECONDS)
flush_events = Histogram("holdfast_flush_events", "Events per flush.", buckets=_COUNTS)
checkpoint_seconds = Histogram(
    "holdfast_checkpoint_seconds", "Duration of checkpoint commits.", buckets=_SECONDS
)
relay_connected = Gauge(
    "holdfast_relay_connected",
    "1 while event notifications of other processes arrive, by transport.",
    ["transport"],
    multiprocess_mode="livemin",
)
hints_lost = Counter(
    "holdfast_hints_lost_total",
    "Event notifications to other processes that could not be sent.",
    ["transport"],
)
retention_rows = Counter(
    "holdfast_retention_rows_total",
    "Rows merged or deleted by retention, by job.",
    ["job"],
)
retention_failures = Counter(
    "holdfast_retention_failures_total", "Failed retention jobs, by job.", ["job"]
)
database_failures = Counter(
    "holdfast_database_failures_total",
    "Transient database errors, by reason.",
    ["reason"],
)
database_ready = Gauge(
    "holdfast_database_ready",
    "1 if the last heartbeat was written, else 0.",
    multiprocess_mode="livemin",
)
http_request_seconds = Histogram(
    "holdfast_http_request_seconds",
    "Duration of HTTP requests by route and class of status. Streams and health checks aren't in it.",
    ["method", "route", "status"],
    buckets=_SECONDS,
)
http_requests_open = Gauge(
    "holdfast_http_requests_open",
    "HTTP requests that are being answered. Streams count until their response begins.",
    multiprocess_mode="livesum",
)
http_stream_start_seconds = Histogram(
    "holdfast_http_stream_start_seconds",
    "Time until the response of an event stream begins, by route.",
    ["route"],
    buckets=_SECONDS,
)
streams_open = Gauge("holdfast_streams_open", "Open event streams.", multiprocess_mode="livesum")
decisions = Counter("holdfast_decisions_total", "Decisions that took effect.", ["action"])


def exposition() -> bytes:
    """All metrics as text; with several processes behind one socket, those of all together."""
    if SHARED_METRICS_VARIABLE not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)
