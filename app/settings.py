"""All settings, from environment variables: `HOLDFAST_*`, `DATABASE_URL` and `NATS_URL`."""

import os
from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import AliasChoices, Field, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

Language: TypeAlias = Literal[
    "simple",
    "arabic",
    "armenian",
    "basque",
    "catalan",
    "danish",
    "dutch",
    "english",
    "finnish",
    "french",
    "german",
    "greek",
    "hindi",
    "hungarian",
    "indonesian",
    "irish",
    "italian",
    "lithuanian",
    "nepali",
    "norwegian",
    "portuguese",
    "romanian",
    "russian",
    "serbian",
    "spanish",
    "swedish",
    "tamil",
    "turkish",
    "yiddish",
]
"""The text search configurations that every Postgres has."""

MIN_HEARTBEATS = 3
"""A process counts as dead only after this many missed heartbeats."""


def available_cores() -> int:
    """The CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Settings(BaseSettings):
    """Every setting with its default and a description. Times are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix="HOLDFAST_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    host: str = Field(
        "127.0.0.1", description="Address to listen on. Any address but loopback needs API keys."
    )
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on. 0 picks a free one.")
    health_port: int | None = Field(
        8001,
        ge=0,
        le=65535,
        description="Port where `holdfast worker` serves /health and /metrics. 0 picks a free one; `off` opens "
        "none. A server has them at HOLDFAST_PORT.",
    )
    role: Literal["all", "api", "worker"] = Field(
        "all",
        description="`all` serves HTTP and executes runs, `api` only serves HTTP, `worker` only executes runs.",
    )
    processes: int = Field(
        1,
        ge=1,
        le=256,
        description="Number of processes of `holdfast serve`, behind one port. `auto` is one for each CPU core. Each "
        "has its own database connections.",
    )
    database_url: str | None = Field(
        None,
        validation_alias=AliasChoices("DATABASE_URL", "HOLDFAST_DATABASE_URL"),
        description="URL of a Postgres 14 or newer. Without it, the embedded Postgres is started.",
    )
    listen_url: str | None = Field(
        None,
        description="URL for LISTEN that goes directly to Postgres. Needed when DATABASE_URL is a pooler.",
    )
    nats_url: str | None = Field(
        None,
        repr=False,
        validation_alias=AliasChoices("NATS_URL", "HOLDFAST_NATS_URL"),
        description="One or more NATS servers that replicas use instead of NOTIFY to announce new events.",
    )
    pgbouncer: bool = Field(
        False, description="Set it when DATABASE_URL is a PgBouncer in transaction mode."
    )
    data_dir: Path | None = Field(
        None,
        description="Data folder of the embedded Postgres. The default depends on the user.",
    )
    migrate: bool | None = Field(
        None, description="Run migrations at start. By default only for the embedded Postgres."
    )
    agents: Path | None = Field(
        None,
        description="Path of the agents file, or of a folder with an agents.toml. Without it, the demo agents "
        "are served.",
    )
    api_keys_file: Path | None = Field(
        None, description="TOML file with the API keys: subject, tenant, scopes and sha256 of each."
    )
    api_keys: str | None = Field(
        None,
        description="More API keys, as a JSON list of {subject, tenant, scopes, sha256}.",
    )
    cors_origins: str | None = Field(
        None,
        description="Origins of web pages that may call this server, separated by commas, such as "
        "`https://app.example.com`. `*` allows every page, without cookies, and needs API keys.",
    )
    allowed_hosts: str | None = Field(
        None,
        description="Host names, besides the local ones, by which this server is reached, separated by commas. "
        "`*.example.com` matches all names below it. Without this setting, a server with API keys takes every name.",
    )
    public_url: str | None = Field(
        None,
        description="Address by which browsers reach this server, such as `https://holdfast.example.com`, with "
        "the path if a proxy shows it below one. The web console needs it behind a proxy with a path.",
    )
    console: bool = Field(
        True, description="Serve the web console at /console/. With 0 it isn't mounted."
    )
    stream_token_secret: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="Secret that signs stream tokens. All replicas need the same one. By default a random "
        "secret is kept in the database.",
    )
    stream_token_secret_previous: str | None = Field(
        None,
        min_length=16,
        repr=False,
        description="The previous secret. Tokens that it signed are accepted until they expire.",
    )
    stream_token_ttl: float = Field(
        300.0, gt=0, le=3600, description="How long a stream token is valid."
    )
    concurrency: int = Field(
        100, ge=1, description="Maximum number of runs that a process executes at once."
    )
    task_concurrency: int = Field(
        100, ge=1, description="Maximum number of background tasks that a process executes at once."
    )
    pool_size: int = Field(10, ge=2, description="Database connections for transactions.")
    hot_pool_size: int = Field(
        10, ge=3, description="Further ones, for single statements such as checkpoints."
    )
    pool_timeout: float = Field(
        5.0,
        gt=0,
        description="How long a request waits for a free connection before it gets 503 `overloaded`.",
    )
    statement_timeout: float = Field(
        15.0,
        gt=0,
        description="Maximum duration of an SQL statement, also when Postgres doesn't respond.",
    )
    lock_timeout: float = Field(5.0, gt=0, description="How long a statement waits for a lock.")
    connection_lifetime: float = Field(
        1800.0, gt=0, description="Maximum age of a database connection before it is replaced."
    )
    tcp_keepalive: float = Field(
        30.0,
        ge=1,
        description="Idle time on a database connection before TCP keepalive probes are sent.",
    )
    heartbeat_interval: float = Field(
        1.0, gt=0, description="Time between heartbeats of a process."
    )
    heartbeat_timeout: float = Field(
        10.0,
        gt=0,
        validate_default=True,
        description="Time without a heartbeat after which other workers take over a process's runs.",
    )
    blocked_timeout: float = Field(
        60.0, gt=0, description="How long a process with a blocked event loop keeps its runs."
    )
    sweep_interval: float = Field(
        1.0, gt=0, description="Time between searches for runs that no live worker owns."
    )
    queue_poll: float = Field(
        1.0, gt=0, description="Time between polls of the queue, in case a notification is lost."
    )
    startup_function_timeout: float = Field(
        60.0,
        gt=0,
        description="Maximum duration of each function with `@startup`. Beyond it the process doesn't start.",
    )
    handover_grace: float = Field(
        5.0,
        ge=0,
        description="How long a stopping process lets its runs reach a checkpoint before it hands them over.",
    )
    drain_delay: float = Field(
        0.0,
        ge=0,
        description="Time between SIGTERM, when /health returns 503, and the refusal of new requests. Lets "
        "load balancers react.",
    )
    stream_heartbeat: float = Field(
        5.0,
        gt=0,
        le=30,
        description="Idle time on an event stream before a comment is sent to keep it open.",
    )
    stream_send_timeout: float = Field(
        30.0, gt=0, description="A stream is closed when its client reads nothing for this long."
    )
    client_timeout: float = Field(
        30.0,
        gt=0,
        description="Maximum time to receive a request. A body that arrives with 10 kB per second or more "
        "may take longer. Also closes a connection whose client reads "
        "nothing of the response for this long.",
    )
    log_poll: float = Field(
        2.0,
        gt=0,
        description="Time between checks of followed threads for events whose notification was lost.",
    )
    max_body_bytes: int = Field(2_000_000, ge=1000, description="Maximum size of a request body.")
    max_file_bytes: int = Field(
        20_000_000,
        ge=1000,
        description="Maximum size of a file that is uploaded or saved by a tool.",
    )
    blobs: str | None = Field(
        None,
        pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._-]+)*/?$",
        description="S3 bucket for the bytes of new files, as `s3://BUCKET/PREFIX`; needs the extra `s3`. Endpoint, "
        "region and credentials come from the AWS environment variables. By default the database has the bytes.",
    )
    max_inline_bytes: int = Field(
        10_000_000,
        ge=1000,
        description="Maximum size of all files in a request to a model. Older files become placeholders.",
    )
    max_message_bytes: int = Field(1_000_000, ge=100, description="Maximum size of a message.")
    history_cache_bytes: int = Field(
        64_000_000,
        ge=0,
        description="Memory for messages of recent threads, which later runs don't read again; approximate.",
    )
    encoded_messages_bytes: int = Field(
        16_000_000,
        ge=0,
        description="Memory for the JSON of messages in recent requests to models, which later requests of their "
        "threads don't encode again; approximate.",
    )
    max_answer_bytes: int = Field(
        4_000_000,
        ge=1000,
        description="Maximum size of a model's answer with its reasoning and calls. A longer answer is cut, "
        "as by its length limit.",
    )
    max_memory_bytes: int = Field(
        4_000, ge=100, le=100_000, description="Maximum size of one memory, its key and its value."
    )
    max_memories: int = Field(
        1_000,
        ge=1,
        le=10_000,
        description="Maximum number of memories of an owner, such as a user.",
    )
    max_memory_total_bytes: int = Field(
        1_000_000, ge=100, description="Maximum size of all memories of an owner."
    )
    memory_language: Language = Field(
        "english",
        description="Language in which memories are searched, by the names of Postgres. `simple` finds exact words "
        "only.",
    )
    max_queue_per_thread: int = Field(
        100, ge=1, description="Maximum number of runs that queue for a thread."
    )
    rate_limit_suspend_after: float = Field(
        20.0,
        ge=0,
        description="Longest rate-limit delay that a worker waits for. For a longer delay the run is "
        "suspended.",
    )
    rate_limit_max_wait: float = Field(
        3_600.0,
        ge=0,
        description="Maximum total time that a run is suspended for rate limits. Beyond it the run ends "
        "with `rate_limit_wait_exceeded`.",
    )
    retention_interval: float = Field(
        60.0, gt=0, description="Time between retention jobs, which merge, sum or delete old rows."
    )
    delta_retention: float = Field(
        3_600.0,
        ge=60,
        description="How long the text deltas of a finished run are kept. Then the deltas of each message "
        "are merged into one event.",
    )
    event_retention: float | None = Field(
        None,
        ge=60,
        description="How long the events of a finished run are kept. By default for ever. The run, its "
        "messages and its audit are kept in any case.",
    )
    task_retention: float | None = Field(
        None,
        ge=60,
        description="How long the background tasks of a finished run are kept. By default for ever.",
    )
    input_retention: float = Field(
        604_800.0,
        ge=60,
        description="How long the inputs of a finished run are kept. Its messages stay in the log.",
    )
    notice_retention: float = Field(
        2_592_000.0, ge=60, description="How long the ticket event stream keeps its events."
    )
    queue_log_retention: float = Field(
        604_800.0, ge=60, description="How long the queue's log and statistics are kept."
    )
    signal_retention: float = Field(
        86_400.0,
        ge=60,
        description="How long a signal is kept for later tickets, and its id for duplicates.",
    )
    file_retention: float | None = Field(
        None,
        ge=3_600,
        description="How long a file is kept that no thread refers to, such as an upload that was never used. By "
        "default for ever.",
    )
    usage_retention: float = Field(
        34_560_000.0,
        ge=3_600,
        description="How long the usage ledger is kept. By default 400 days.",
    )
    memory_retention: float | None = Field(
        None,
        ge=60,
        description="How long a memory is kept after its last change. By default for ever.",
    )
    idempotency_retention: float = Field(
        86_400.0,
        gt=0,
        description="How long the response to a request with an Idempotency-Key is kept.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum level of log lines."
    )
    log_json: bool = Field(False, description="Write log lines as JSON.")
    url: str | None = Field(
        None,
        description="Server that the commands `run`, `decide`, `signal`, `tail` and `doctor` use. By default "
        "the one on this machine, at HOLDFAST_PORT.",
    )
    api_key: str | None = Field(None, repr=False, description="API key that these commands send.")

    @field_validator("processes", mode="before")
    @classmethod
    def _auto_is_one_for_each_core(cls, value: object) -> object:
        return available_cores() if value == "auto" else value

    @field_validator("health_port", mode="before")
    @classmethod
    def _off_is_no_port(cls, value: object) -> object:
        return None if value == "off" else value

    @field_validator("agents")
    @classmethod
    def _agents_file(cls, path: Path | None) -> Path | None:
        """The file of a folder."""
        return path / "agents.toml" if path is not None and path.is_dir() else path

    @field_validator("heartbeat_timeout")
    @classmethod
    def _covers_several_heartbeats(cls, value: float, others: ValidationInfo) -> float:
        """A shorter time-out would let workers take runs from live processes."""
        interval = others.data.get("heartbeat_interval")
        if interval is not None and value < MIN_HEARTBEATS * interval:
            raise ValueError(f"must be at least {MIN_HEARTBEATS} times HOLDFAST_HEARTBEAT_INTERVAL")
        return value
