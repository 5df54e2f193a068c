"""What is measured and how it is logged: the names of all counters, and the set-up of structlog."""

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

runs_started = Counter("holdfast_runs_started_total", "Runs accepted.", ["agent"])
runs_finished = Counter(
    "holdfast_runs_finished_total",
    "Activations that ended, by termination.",
    ["agent", "termination"],
)
runs_executing = Gauge("holdfast_runs_executing", "Runs that this process executes now.")
run_seconds = Histogram(
    "holdfast_activation_seconds", "From claim to run_finish.", ["agent"], buckets=_SECONDS
)
takeovers = Counter("holdfast_takeovers_total", "Runs taken over from a worker that was lost.")
ownership_lost = Counter("holdfast_ownership_lost_total", "Runs that this process has lost.")
loop_blockages = Counter(
    "holdfast_loop_blockages_total", "Times that something has blocked the event loop for long."
)
steps = Counter("holdfast_steps_total", "Steps completed.", ["agent"])
inference_seconds = Histogram(
    "holdfast_inference_seconds", "Duration of model calls.", ["model"], buckets=_SECONDS
)
tokens = Counter("holdfast_tokens_total", "Tokens, as reported by providers.", ["model", "kind"])
inference_retries = Counter(
    "holdfast_inference_retries_total",
    "Model calls that were made again, by why the one before failed.",
    ["model", "failure"],
)
stream_recoveries = Counter(
    "holdfast_stream_recoveries_total",
    "Answers that broke off and were mended, by how.",
    ["model", "plan"],
)
circuit_openings = Counter(
    "holdfast_circuit_openings_total", "Models that were shut after failures in a row.", ["model"]
)
circuit_refusals = Counter(
    "holdfast_circuit_refusals_total", "Requests that found their model shut.", ["model"]
)
rate_limit_waits = Histogram(
    "holdfast_rate_limit_wait_seconds",
    "Pauses for which runs were suspended, by who asked: provider, breaker or plugin.",
    ["model", "asked_by"],
    buckets=(1, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600),
)
tool_calls = Counter(
    "holdfast_tool_calls_total", "Tool calls that came to a result.", ["tool", "status"]
)
signals = Counter(
    "holdfast_signals_total", "Signals accepted: for tickets that wait, or kept.", ["status"]
)
signal_tickets = Counter(
    "holdfast_signal_tickets_total",
    "Tickets that signals have met, by what came of it.",
    ["outcome"],
)
tasks_ended = Counter("holdfast_tasks_total", "Background tasks that ended.", ["tool", "status"])
tasks_executing = Gauge(
    "holdfast_tasks_executing", "Background tasks that this process executes now."
)
followups_failed = Counter(
    "holdfast_errands_failed_total", "Tries of errands between runs that failed.", ["errand"]
)
followups_given_up = Counter(
    "holdfast_errands_given_up_total", "Errands between runs that were given up.", ["errand"]
)
summaries = Counter(
    "holdfast_summaries_total", "Summaries of old messages, by what came of them.", ["outcome"]
)
queue_delay = Histogram(
    "holdfast_queue_delay_seconds",
    "From a delivery's enqueuing, or the moment that it was put off to, to its claim.",
    buckets=_SECONDS,
)
flush_seconds = Histogram("holdfast_flush_seconds", "Duration of event flushes.", buckets=_SECONDS)
flush_events = Histogram("holdfast_flush_events", "Events per flush.", buckets=_COUNTS)
checkpoint_seconds = Histogram(
    "holdfast_checkpoint_seconds", "Duration of checkpoint commits.", buckets=_SECONDS
)
relay_connected = Gauge(
    "holdfast_relay_connected",
    "Whether hints of other processes arrive, by what carries them.",
    ["wire"],
)
hints_lost = Counter(
    "holdfast_hints_lost_total", "Hints to other processes that could not be sent.", ["wire"]
)
retention_rows = Counter(
    "holdfast_retention_rows_total",
    "Rows that were merged with others or removed because they were old, by duty.",
    ["duty"],
)
retention_failures = Counter(
    "holdfast_retention_failures_total", "Duties of retention that broke, by duty.", ["duty"]
)
database_failures = Counter(
    "holdfast_database_failures_total",
    "Statements that failed of something that passes, by its cause.",
    ["reason"],
)
database_ready = Gauge(
    "holdfast_database_ready", "Whether the last heartbeat could be written: 1 or 0."
)
streams_open = Gauge("holdfast_streams_open", "Event streams that clients hold open.")
decisions = Counter("holdfast_decisions_total", "Decisions that took effect.", ["action"])

_STEERS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_NOISY = ("a2a", "alembic", "asyncio", "httpcore", "httpcore2", "httpx", "httpx2", "pgqueuer")
"""Other libraries that tell at each turn what they do."""
_SEVERAL_LINES = frozenset({"exception", "stack"})


def set_up_logging(level: str, *, as_json: bool, redact: Redact = unredacted) -> None:
    """One line per event on stderr; other libraries' records go the same way. No line has a secret that
    `redact` knows, also not in a traceback."""
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
                *([] if as_json else [_contained]),
                renderer,
                partial(_redacted, redact),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    # In an outage they tell again and again, with tracebacks, what their callers are told anyway.
    logging.getLogger("asyncpg").setLevel(logging.ERROR)
    logging.getLogger("sqlalchemy.pool").setLevel(logging.CRITICAL)


def _redacted(redact: Redact, _: object, __: str, line: Any) -> str:
    """The whole line, as it is written."""
    return redact(line if isinstance(line, str) else line.decode())


def _contained(_: object, __: str, event: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """Whatever others have put into a line, it stays that line, and steers nobody's terminal.

    A traceback has lines of its own, all of them indented: none can pass for another entry.
    """
    for key, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = (
                value.rstrip("\n").split("\n") if key in _SEVERAL_LINES else [value.rstrip("\n")]
            )
            event[key] = "\n    ".join(_STEERS.sub(_spelled, line) for line in lines)
    return event


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
