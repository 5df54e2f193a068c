"""Options that several commands have, and values that options are read from."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.domain.slices import Order

Url = Annotated[
    str | None,
    typer.Option(
        help="Address of the server.",
        show_default="HOLDFAST_URL, or the local server",
    ),
]
Key = Annotated[str | None, typer.Option(help="Your API key.", show_default="HOLDFAST_API_KEY")]
Agents = Annotated[
    Path | None,
    typer.Option(
        help="The agents file, or its folder.",
        show_default="HOLDFAST_AGENTS, or the demo agents",
    ),
]
Run = Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
ListOrder = Annotated[
    Order | None,
    typer.Option(
        "--order", help="asc: the oldest first; desc: the newest.", show_default="the newest first"
    ),
]
CreatedAfter = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what was created after this time.")
]
CreatedBefore = Annotated[
    str | None, typer.Option(metavar="TIME", help="Only what was created before this time.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=TEXT", help="Only with this metadata. May be repeated."),
]
Limit = Annotated[int, typer.Option("--limit", min=1, help="Maximum number of lines.")]


def metadata_filters(pairs: list[str] | None) -> dict[str, str]:
    """Query parameters for `--metadata`."""
    split = [pair.partition("=") for pair in pairs or ()]
    if any(not equals for _, equals, _ in split):
        raise typer.BadParameter("must be KEY=TEXT.", param_hint="--metadata")
    return {f"metadata.{name}": text for name, _, text in split}


def json_option(option: str, text: str) -> Any:
    """The JSON value of an option. Text that isn't JSON is a wrong command line."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"isn't valid JSON: {error}.", param_hint=option) from None
