"""The shape of an agents file: its sections and keys. Whether their names fit together is checked later."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from msgspec import Struct
from pydantic import AfterValidator, BaseModel, Field, ValidationError

from app.agents.config_entry import ConfigEntry, GlobText, Name, bare_address
from app.agents.config_errors import ConfigErrors
from app.agents.mcp_entries import McpEntry
from app.domain.agents.endpoints import DEFAULT_TIMEOUT_SECONDS
from app.domain.agents.specs import AgentSpec, Delegation
from app.domain.agents.tool_search import DEFAULT_THRESHOLD
from app.domain.errors import ConfigurationError
from app.domain.ids import AgentId
from app.domain.inference.options import EffortName, RetryPolicy
from app.domain.json_values import as_object
from app.domain.runs.output_specs import MAX_RETRIES
from app.domain.suggestions import did_you_mean, without_unit
from app.llm.specs import ModelSpec, spec_from_table

_SECTIONS = ("models", "tools", "mcp", "agents")
_DEFAULTS = AgentSpec(id=AgentId(""), model="")
_RETRY = RetryPolicy()
_DELEGATION = Delegation()
MAX_SKILLS = 50
"""Of an agent. Each step pays for their descriptions."""
MAX_SECONDS = 10 * 365 * 86_400
"""Ten years, the maximum time until a ticket expires."""


class ToolsEntry(ConfigEntry):
    modules: list[Name] = []


class OptionsEntry(ConfigEntry):
    """How the agent's model is asked; a run may override it."""

    upstream_model: Name | None = None
    fallback_upstream_models: list[Name] | None = None
    temperature: float | None = Field(default=None, ge=0)
    max_tokens: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    reasoning_effort: EffortName | None = None
    thinking_budget: int | None = Field(default=None, ge=1)


class RetryEntry(ConfigEntry):
    """How often the model is asked again. Seconds."""

    max_retries: int = Field(default=_RETRY.max_retries, ge=0, le=20)
    fallback_upstream_models: list[Name] = []
    backoff_base: float = Field(default=_RETRY.backoff_base, ge=0)
    overloaded_backoff_base: float = Field(default=_RETRY.overloaded_backoff_base, ge=0)
    max_backoff: float = Field(default=_RETRY.max_backoff, ge=0)
    max_stream_retries: int = Field(default=_RETRY.max_stream_retries, ge=0, le=20)
    stream_idle_timeout: float = Field(default=_RETRY.stream_idle_timeout, gt=0)
    max_continuation_retries: int = Field(default=_RETRY.max_continuation_retries, ge=0, le=20)


class ApproversEntry(ConfigEntry):
    """Who may let calls of one tool pass."""

    scope: str | None = Field(
        default=None,
        pattern=r"^(runs:read|runs:write|decisions:write|signals:write|admin|approve:[A-Za-z0-9][A-Za-z0-9._:-]{0,99})$",
    )
    not_starter: bool = False
    quorum: int = Field(default=1, ge=1, le=20)


class EndpointEntry(ConfigEntry):
    """The endpoint of a remote agent. Its backend checks `options`."""

    backend: Name
    url: Annotated[str, Field(pattern=r"^https?://[^\s/]+"), AfterValidator(bare_address)]
    target: Name | None = None
    auth_env: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    timeout: float = Field(default=DEFAULT_TIMEOUT_SECONDS, gt=0, le=86_400)
    options: dict[str, Any] = {}


class DelegationEntry(ConfigEntry):
    """How an agent may give work to its delegates."""

    max_depth: int = Field(default=_DELEGATION.max_depth, ge=1, le=20)
    max_children: int = Field(default=_DELEGATION.max_children, ge=1, le=1000)
    keep: bool = _DELEGATION.keep


class OutputEntry(ConfigEntry):
    """The format of final answers."""

    schema_: dict[str, Any] = Field(alias="schema")
    name: str = "final_answer"
    mode: Literal["auto", "native", "tool", "prompted"] = "auto"
    retries: int = Field(default=2, ge=0, le=MAX_RETRIES)
    strict: bool = False


class ToolSearchEntry(ConfigEntry):
    """When the model sees a search tool in place of all descriptions."""

    mode: Literal["auto", "on", "off"] = "auto"
    threshold: int = Field(default=DEFAULT_THRESHOLD, ge=1, le=10_000)
    always: list[GlobText] = []


class AgentEntry(ConfigEntry):
    model: Name | None = None
    endpoint: EndpointEntry | None = None
    system_prompt: str = ""
    description: str = ""
    tools: list[Name] = []
    approval: list[Name] = []
    background: list[Name] = []
    handoffs: list[Name] = []
    delegates: list[Name] = []
    delegation: DelegationEntry = DelegationEntry()
    output: OutputEntry | None = None
    max_rounds: int = Field(default=_DEFAULTS.max_rounds, ge=1)
    tool_execution: Literal["sequential", "parallel"] = "sequential"
    options: OptionsEntry = OptionsEntry()
    retry: RetryEntry = RetryEntry()
    tool_search: ToolSearchEntry = ToolSearchEntry()
    skills: list[Name] = Field(default=[], max_length=MAX_SKILLS)
    script_timeout: float = Field(default=_DEFAULTS.script_timeout, gt=0, le=86_400)
    plugins: dict[str, dict[str, Any]] = {}
    approvers: dict[str, ApproversEntry] = {}
    ticket_expires_in: float | None = Field(default=None, gt=0, le=MAX_SECONDS)
    on_expiry: Literal["reject", "cancel_run", "keep"] = "reject"


E = TypeVar("E", bound=BaseModel)


class FileSections(Struct, frozen=True):
    """The entries that could be read. An entry with problems is None."""

    models: Mapping[str, ModelSpec | None]
    tools: ToolsEntry | None
    mcp: Mapping[str, McpEntry | None]
    agents: Mapping[str, AgentEntry | None]


def read_entries(path: Path, problems: ConfigErrors) -> FileSections:
    """Read all entries of a file. Raises ConfigurationError if it isn't TOML."""
    raw = _read_toml(path)
    for section in raw:
        if section not in _SECTIONS:
            problems.add(section, f"unknown section; {did_you_mean(section, _SECTIONS)}")
    if raw.get("agents", {}) == {}:
        problems.add("agents", 'there are none; add [agents.<name>] with model = "…"')
    return FileSections(
        models={
            name: _read_model(name, table, problems)
            for name, table in _named("models", raw, problems).items()
        },
        tools=check_entry(ToolsEntry, "tools", raw.get("tools", {}), problems),
        mcp={
            name: check_entry(McpEntry, f"mcp.{name}", table, problems)
            for name, table in _named("mcp", raw, problems).items()
        },
        agents={
            name: check_entry(AgentEntry, f"agents.{name}", table, problems)
            for name, table in _named("agents", raw, problems).items()
        },
    )


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigurationError(
            f"{path}: can't be read ({reason}); HOLDFAST_AGENTS names the agents file"
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: isn't UTF-8 text; save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: isn't TOML: {error}; correct it there") from error


def _named(section: str, raw: Mapping[str, Any], problems: ConfigErrors) -> Mapping[str, Any]:
    tables = as_object(raw.get(section, {}))
    if tables is None:
        problems.add(section, f"must be a table of tables; write [{section}.<name>]")
        return {}
    return tables


def _read_model(name: str, body: object, problems: ConfigErrors) -> ModelSpec | None:
    key, table = f"models.{name}", as_object(body)
    if table is None:
        problems.add(key, f"must be a table; write its keys under [{key}]")
        return None
    try:
        return spec_from_table(name, table)
    except ConfigurationError as error:
        problems.add(key, str(error).removeprefix(f"[{key}] "))
        return None


def check_entry(entry: type[E], key: str, body: object, problems: ConfigErrors) -> E | None:
    """Convert the table to its entry. Adds its problems and returns None if there are any."""
    try:
        return entry.model_validate(body)
    except ValidationError as error:
        for each in error.errors(include_url=False):
            sentence = _sentence(each["type"], each["msg"], each["loc"], entry, each["input"])
            problems.add(_key(key, each["loc"]), sentence)
        return None


def _key(key: str, location: Iterable[int | str]) -> str:
    return key + "".join(f"[{at}]" if isinstance(at, int) else f".{at}" for at in location)


def _table_at(entry: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel]:
    """The entry of the table that a location is in: the keys of `options` aren't those of the agent."""
    for part in location[:-1]:
        field = entry.model_fields.get(str(part))
        nested = () if field is None else (field.annotation, *get_args(field.annotation))
        tables = [each for each in nested if isinstance(each, type) and issubclass(each, BaseModel)]
        entry = tables[0] if tables else entry
    return entry


def _sentence(
    kind: str,
    message: str,
    location: tuple[int | str, ...],
    entry: type[BaseModel],
    value: object,
) -> str:
    """What is wrong and what to write instead, without the value, which may be a key. Only a number that is
    written as text is repeated."""
    match kind:
        case "extra_forbidden":
            known = _table_at(entry, location).model_fields
            return f"unknown key; {did_you_mean(str(location[-1]), known)}"
        case "float_type" | "int_type" if (number := without_unit(value)) is not None:
            return f"must be a number without quotes and unit; write {location[-1]} = {number}"
        case "missing":
            return f'is missing; add {location[-1]} = "…"'
        case "string_type":
            return 'must be a string; write it in quotes: "…"'
        case "string_too_short":
            return "must not be empty; write a name or leave the key out"
        case "list_type":
            return 'must be a list; write ["…", "…"]'
        case "dict_type" | "model_type":
            return "must be a table; write its keys under a header in [brackets]"
        case "value_error":
            return message.removeprefix("Value error, ")
        case _:
            return f"{message[:1].lower()}{message[1:]}; correct the value"
