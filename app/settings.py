"""All configuration, from the environment: `HOLDFAST_*`, and `DATABASE_URL`."""

from pathlib import Path
from typing import Literal

from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

MIN_HEARTBEATS = 3
"""So many heartbeats may be late before anybody believes that a process has died."""


class Settings(BaseSettings):
    """Every setting, with its default and one sentence. Times are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix="HOLDFAST_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    host: str = Field(
        "127.0.0.1", description="Address to listen on; others than loopback need keys."
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    role: Literal["all", "api", "worker"] = Field(
        "all", description="Serve HTTP and execute runs (`all`), or only one of the two."
    )
    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("DATABASE_URL", "HOLDFAST_DATABASE_URL"),
        description="Postgres 14 or newer; without it the embedded one is started.",
    )
    listen_url: str | None = Field(
        None, description="A direct URL for LISTEN, when DATABASE_URL goes through a pooler."
    )
    nats_url: str | None = Field(
        None,
        repr=False,
        validation_alias=AliasChoices("NATS_URL", "HOLDFAST_NATS_URL"),
        description="A NATS server, or several, that carries hints between replicas in place of NOTIFY.",
    )
    pgbouncer: bool = Field(False, description="DATABASE_URL is a pooler in transaction mode.")
    data_dir: Path | None = Field(
        None,
        description="Where the embedded Postgres keeps its data; a default per user otherwise.",
    )
    migrate: bool | None = Field(
        None, description="Migrate at start; by default only the embedded database is."
    )
    agents: Path | None = Field(None, description="The agents file; the demo agents otherwise.")
    api_keys_file: Path | None = Field(
        None, description="TOML file of API keys: subject, tenant, scopes, sha256 of each key."
    )
    api_keys: str | None = Field(
        None,
        description="API keys as JSON: a list of {subject, tenant, scopes, sha256}; beside the file.",
    )
    stream_token_secret: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="Signs stream tokens, the same on all replicas; by default a random one in the "
        "database.",
    )
    stream_token_secret_previous: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="The one before: tokens that it has signed are accepted until they expire.",
    )
    stream_token_ttl: float = Field(300.0, gt=0, le=3600, description="Life of a stream token.")
    concurrency: int = Field(100, ge=1, description="Runs that one process executes at once.")
    task_concurrency: int = Field(
        100, ge=1, description="Background tasks that one process executes at once."
    )
    pool_size: int = Field(10, ge=2, description="Database connections for commands and queries.")
    hot_pool_size: int = Field(10, ge=3, description="Database connections for executing runs.")
    pool_timeout: float = Field(
        5.0, gt=0, description="Wait for a free connection; then requests get 503 `overloaded`."
    )
    statement_timeout: float = Field(
        15.0,
        gt=0,
        description="A statement that takes longer is given up, also when the server is silent.",
    )
    lock_timeout: float = Field(
        5.0, gt=0, description="Wait for what another transaction has locked."
    )
    connection_lifetime: float = Field(
        1800.0, gt=0, description="Age at which a database connection is replaced."
    )
    tcp_keepalive: float = Field(
        30.0,
        ge=1,
        description="Silence after which the database's machine is asked if it is there.",
    )
    heartbeat_interval: float = Field(
        1.0, gt=0, description="How often a process says it is alive."
    )
    heartbeat_timeout: float = Field(
        10.0,
        gt=0,
        validate_default=True,
        description="Silence after which a process's runs are taken over.",
    )
    blocked_timeout: float = Field(
        60.0, gt=0, description="How long a process keeps its runs while its event loop is blocked."
    )
    sweep_interval: float = Field(1.0, gt=0, description="How often stranded runs are looked for.")
    queue_poll: float = Field(1.0, gt=0, description="How often the queue is asked without a hint.")
    handover_grace: float = Field(
        5.0, ge=0, description="Time for runs to reach a safe point when the process stops."
    )
    drain_delay: float = Field(
        0.0,
        ge=0,
        description="Time between SIGTERM, when /health turns 503, and the end of service: for load "
        "balancers to notice.",
    )
    stream_heartbeat: float = Field(
        5.0, gt=0, le=30, description="Silence on a stream before a comment keeps it open."
    )
    stream_send_timeout: float = Field(
        30.0, gt=0, description="A client that takes nothing for so long is cut off."
    )
    client_timeout: float = Field(
        30.0,
        gt=0,
        description="A request that hasn't come whole by then is refused, and an answer of which "
        "nothing is taken for so long is given up.",
    )
    log_poll: float = Field(
        2.0, gt=0, description="How often followed threads are checked for lost hints."
    )
    max_body_bytes: int = Field(2_000_000, ge=1000, description="Largest request body.")
    max_message_bytes: int = Field(1_000_000, ge=100, description="Largest message.")
    max_queue_per_thread: int = Field(100, ge=1, description="Runs that may queue for one thread.")
    rate_limit_suspend_after: float = Field(
        20.0,
        ge=0,
        description="Longest pause that a worker sits out when a model's provider asks for one; "
        "for a longer one the run is suspended.",
    )
    rate_limit_max_wait: float = Field(
        3_600.0,
        ge=0,
        description="Sum of all such suspensions of a run; one that would wait longer ends with "
        "`rate_limit_wait_exceeded`.",
    )
    retention_interval: float = Field(
        60.0, gt=0, description="How often what is old is merged or removed, as follows."
    )
    delta_retention: float = Field(
        3_600.0,
        ge=60,
        description="How long the pieces in which a run has spoken are kept, once it is done; "
        "then each message's become one.",
    )
    event_retention: float | None = Field(
        None,
        ge=60,
        description="How long events are kept, once their run is done; by default for ever. "
        "Its record, messages and audit stay.",
    )
    task_retention: float | None = Field(
        None, ge=60, description="How long background tasks are kept, once their run is done."
    )
    input_retention: float = Field(
        604_800.0,
        ge=60,
        description="How long it is kept what was said to a run on its way, once that is done.",
    )
    notice_retention: float = Field(
        2_592_000.0, ge=60, description="How far back the inbox can be read as a stream."
    )
    queue_log_retention: float = Field(
        604_800.0, ge=60, description="How long the queue's own log and statistics are kept."
    )
    signal_retention: float = Field(
        86_400.0,
        ge=60,
        description="How long a signal is kept: for a ticket that comes later, and to know its id again.",
    )
    idempotency_retention: float = Field(
        86_400.0, gt=0, description="How long answers are kept for repetitions under the same key."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level to log."
    )
    log_json: bool = Field(False, description="Log lines as JSON.")
    url: str | None = Field(
        None,
        description="Server that `run`, `decide`, `signal`, `tail` and `doctor` ask; "
        "by default this machine's, at HOLDFAST_PORT.",
    )
    api_key: str | None = Field(None, repr=False, description="API key that they send to it.")

    @field_validator("heartbeat_timeout")
    @classmethod
    def _lasts_several_beats(cls, value: float, others: ValidationInfo) -> float:
        """With less, processes that are alive and well would take each other's runs."""
        interval = others.data.get("heartbeat_interval")
        if interval is not None and value < MIN_HEARTBEATS * interval:
            raise ValueError(f"must be at least {MIN_HEARTBEATS} times HOLDFAST_HEARTBEAT_INTERVAL")
        return value
