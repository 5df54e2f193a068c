"""The variables that say how everything is set: read, listed, and a sentence for each that is wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from pydantic import ValidationError

from app.cli.exit_codes import exit_with
from app.llm.specs import DEFAULT_ANTHROPIC_MODEL, DEFAULT_OPENAI_MODEL, OPENAI_BASE_URL
from app.settings import Settings

_PREFIX = "HOLDFAST_"
_OTHERS_KNOW = ("DATABASE_URL", "NATS_URL")
"""Names without our prefix, by which other programs look for the same."""
_USUAL_PORT: int = Settings.model_fields["port"].default


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    default: str
    meaning: str


_OF_MODELS = (
    Variable("OPENAI_API_KEY", "", "Adds the model `openai`, and an agent on it to the demo."),
    Variable("OPENAI_BASE_URL", OPENAI_BASE_URL, "Where that model is."),
    Variable(f"{_PREFIX}OPENAI_MODEL", DEFAULT_OPENAI_MODEL, "The provider's name for it."),
    Variable("ANTHROPIC_API_KEY", "", "Adds the model `anthropic`, and an agent on it."),
    Variable(f"{_PREFIX}ANTHROPIC_MODEL", DEFAULT_ANTHROPIC_MODEL, "The provider's name for it."),
)


def read_settings() -> Settings:
    try:
        return Settings()
    except ValidationError as error:
        exit_with("\nholdfast: ".join(_sentences(error)))


def server_settings(url: str | None, key: str | None) -> tuple[str, str | None]:
    """Which server is asked, and with which key: by option, by setting, or the one of this machine."""
    settings = read_settings()
    here = f"http://127.0.0.1:{settings.port or _USUAL_PORT}"
    return (url or settings.url or here).rstrip("/"), key or settings.api_key


def variables() -> list[Variable]:
    """Everything that may be set, the settings first."""
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
    """A sentence for each variable that looks like a setting and is none."""
    known = [
        *(variable.name for variable in variables()),
        *(f"{_PREFIX}{name}" for name in _OTHERS_KNOW),
    ]
    return [
        f"{name} isn't a setting{_meant(name, known)}"
        for name in sorted(environ)
        if name.startswith(_PREFIX) and name not in known
    ]


def as_markdown() -> str:
    """The table of the README."""
    rows = [
        f"| `{one.name}` | {f'`{one.default}`' if one.default else ''} | {one.meaning} |"
        for one in variables()
    ]
    return "\n".join(["| Variable | Default | Meaning |", "|---|---|---|", *rows])


def as_text() -> str:
    """The same for a terminal."""
    width = max(len(one.name) for one in variables())
    return "\n".join(
        f"{one.name:{width}}  {one.meaning}{f' [{one.default}]' if one.default else ''}"
        for one in variables()
    )


def _variable(name: str) -> str:
    return name.upper() if name.upper() in _OTHERS_KNOW else f"{_PREFIX}{name.upper()}"


def _sentences(error: ValidationError) -> list[str]:
    """Never the value: it may be a key or a password."""
    found = []
    for one in error.errors(include_input=False, include_url=False):
        name = str(one["loc"][0])
        field = Settings.model_fields.get(name)
        meaning = field.description if field is not None and field.description else ""
        found.append(
            f"{_variable(name.lower())}: {one['msg'].removeprefix('Value error, ')}. It is: {meaning}".strip()
        )
    return found


def _meant(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
