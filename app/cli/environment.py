"""Reads and lists the settings, and explains those that are wrong."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from pydantic import ValidationError

from app.cli.exit_codes import exit_with
from app.domain.spelling import closest_name
from app.llm.specs import DEFAULT_ANTHROPIC_MODEL, DEFAULT_OPENAI_MODEL, OPENAI_BASE_URL
from app.settings import Settings

_PREFIX = "HOLDFAST_"
_WITHOUT_PREFIX = ("DATABASE_URL", "NATS_URL")
"""Names without the prefix, which other programs use, too."""
_DEFAULT_PORT: int = Settings.model_fields["port"].default


class Variable(Struct, frozen=True):
    name: str
    default: str
    meaning: str


_OF_MODELS = (
    Variable(
        "OPENAI_API_KEY",
        "",
        "API key of OpenAI. Adds the model `openai`, and a demo agent that uses it.",
    ),
    Variable("OPENAI_BASE_URL", OPENAI_BASE_URL, "Address of the OpenAI-compatible API."),
    Variable(f"{_PREFIX}OPENAI_MODEL", DEFAULT_OPENAI_MODEL, "Name of the model at the provider."),
    Variable(
        "ANTHROPIC_API_KEY",
        "",
        "API key of Anthropic. Adds the model `anthropic`, and a demo agent that uses it.",
    ),
    Variable(
        f"{_PREFIX}ANTHROPIC_MODEL", DEFAULT_ANTHROPIC_MODEL, "Name of the model at the provider."
    ),
)


def read_settings(**options: object) -> Settings:
    """The settings of the environment, and those that the command line has set."""
    chosen: dict[str, Any] = {name: one for name, one in options.items() if one is not None}
    try:
        return Settings(**chosen)
    except ValidationError as error:
        exit_with("\nholdfast: ".join(_sentences(error)))


def server_settings(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Address and key of the server: from options, from settings, or the local default."""
    settings = read_settings()
    here = f"http://127.0.0.1:{settings.port or _DEFAULT_PORT}"
    return (url or settings.url or here).rstrip("/"), key or settings.api_key


def variables() -> list[Variable]:
    """All variables, the settings first."""
    settings = [
        Variable(
            _variable(name),
            "" if field.default is None else str(field.default),
            field.description or "",
        )
        for name, field in Settings.model_fields.items()
    ]
    return [*settings, *_OF_MODELS]


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each `HOLDFAST_` variable that isn't a setting."""
    known = [
        *(variable.name for variable in variables()),
        *(f"{_PREFIX}{name}" for name in _WITHOUT_PREFIX),
    ]
    return [
        f"{name} isn't a setting{_suggestion(name, known)}"
        for name in sorted(environ)
        if name.startswith(_PREFIX) and name not in known
    ]


def as_markdown() -> str:
    """The settings as a Markdown table, for the reference."""
    rows = [
        f"| `{one.name}` | {f'`{one.default}`' if one.default else ''} | {one.meaning} |"
        for one in variables()
    ]
    return "\n".join(["| Variable | Default | Meaning |", "|---|---|---|", *rows])


def as_text() -> str:
    """The settings as text for a terminal."""
    width = max(len(one.name) for one in variables())
    return "\n".join(
        f"{one.name:{width}}  {one.meaning}{f' [{one.default}]' if one.default else ''}"
        for one in variables()
    )


def _variable(name: str) -> str:
    return name.upper() if name.upper() in _WITHOUT_PREFIX else f"{_PREFIX}{name.upper()}"


def _sentences(error: ValidationError) -> list[str]:
    """A sentence for each wrong setting. Without the value, which may be a password."""
    found = []
    for one in error.errors(include_input=False, include_url=False):
        name = str(one["loc"][0])
        field = Settings.model_fields.get(name)
        meaning = field.description if field is not None and field.description else ""
        found.append(
            f"{_variable(name.lower())}: {one['msg'].removeprefix('Value error, ')}. Meaning: {meaning}".strip()
        )
    return found


def _suggestion(name: str, known: list[str]) -> str:
    close = closest_name(name, known)
    return "" if close is None else f"; did you mean {close}?"
