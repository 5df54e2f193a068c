"""All metrics, and the set-up of logging."""

import logging
import re
import sys
from functools import partial
from typing import Any

import structlog
from prometheus_client import Counter, Gauge, Histogram

from app.domain.redaction import Redact, unredacted

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_COUNTS = (1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500)

runs_started = Counter("holdfast_runs_started_total", "Runs started.", ["agent"])
runs_finished = Counter(
    "holdfast_runs_finished_total",
    "Activations that ended, by termination.",
    ["agent", "termination"],
)
runs_executing = Gauge("holdfast_runs_executing", "Runs that this process is executing.")
run_seconds = Histogram(
    "holdfast_activation_seconds",
    "Duration of activations, from claim to run_finish.",
    ["agent"],
    buckets=_SECONDS,
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
inference_retries = Counter(
    "holdfast_inference_retries_total",
    "Retries of model calls, by the failure that caused them.",
    ["model", "failure"],
)
stream_recoveries = Counter(
    "holdfast_stream_recoveries_total",
    "Model responses that broke off and were recovered, by recovery plan.",
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
    ["model", "asked_by"],
    buckets=(1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
)
tool_calls = Counter(
    "holdfast_tool_calls_total", "Tool calls that returned a result.", ["tool", "status"]
)
signals = Counter("holdfast_signals_total", "Signals accepted, by status.", ["status"])
signal_tickets = Counter(
    "holdfast_signal_tickets_total",
    "Tickets that matched a signal, by outcome.",
    ["outcome"],
)
tasks_ended = Counter("holdfast_tasks_total", "Background tasks that ended.", ["tool", "status"])
tasks_executing = Gauge(
    "holdfast_tasks_executing", "Background tasks that this process is executing."
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
    ["wire"],
)
hints_lost = Counter(
    "holdfast_hints_lost_total",
    "Event notifications to other processes that could not be sent.",
    ["wire"],
)
retention_rows = Counter(
    "holdfast_retention_rows_total",
    "Rows merged or deleted by retention, by job.",
    ["duty"],
)
retention_failures = Counter(
    "holdfast_retention_failures_total", "Failed retention jobs, by job.", ["duty"]
)
database_failures = Counter(
    "holdfast_database_failures_total",
    "Transient database errors, by reason.",
    ["reason"],
)
database_ready = Gauge("holdfast_database_ready", "1 if the last heartbeat was written, else 0.")
streams_open = Gauge("holdfast_streams_open", "Open event streams.")
decisions = Counter("holdfast_decisions_total", "Decisions that took effect.", ["action"])

_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_VERBOSE_LIBRARIES = (
    "a2a",
    "alembic",
    "asyncio",
    "httpcore",
    "httpcore2",
    "httpx",
    "httpx2",
    "pgqueuer",
)
"""Libraries that log every operation at level info."""
_MULTILINE_KEYS = frozenset({"exception", "stack"})


def set_up_logging(level: str, *, as_json: bool, redact: Redact = unredacted) -> None:
    """Log to stderr, one line per event, also for libraries. `redact` removes secrets from each line,
    tracebacks included."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if as_json
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            *shared,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                *([] if as_json else [_escape_control_characters]),
                renderer,
                partial(_redacted, redact),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for library in _VERBOSE_LIBRARIES:
        logging.getLogger(library).setLevel(max(logging.WARNING, root.level))
    # During an outage they log a traceback for each error that their caller handles anyway.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


def _redacted(redact: Redact, _: object, __: str, line: Any) -> str:
    """Redacts the whole rendered line."""
    return redact(line if isinstance(line, str) else line.decode())


def _escape_control_characters(
    _: object, __: str, event: structlog.typing.EventDict
) -> structlog.typing.EventDict:
    """Escape control characters, so that a value can't forge a log line or control the terminal.

    The lines of a traceback are indented for the same reason.
    """
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = (
                value.rstrip("\n").split("\n") if key in _MULTILINE_KEYS else [value.rstrip("\n")]
            )
            event[key] = "\n    ".join(_CONTROL_CHARACTERS.sub(_escaped, line) for line in lines)
    return event


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
