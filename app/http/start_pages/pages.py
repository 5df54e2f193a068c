"""The page at `/` and the one at `/docs`. Neither needs anything from another server."""

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path

from fastapi.openapi.docs import get_swagger_ui_html
from msgspec import Struct

ASSETS = {"swagger-ui-bundle.js": "text/javascript", "swagger-ui.css": "text/css"}
"""The files of the page about the API, with their types."""

_FOLDER = Path(__file__).parent / "swagger_ui"
_DEMO = "demo"
_EMPTY_ICON = "data:,"
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Holdfast</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }}
  code, pre {{ font-family: ui-monospace, monospace; }}
  pre {{ background: #f3f3f3; color: #111; padding: 0.6rem 1rem; overflow-x: auto; }}
</style>
<h1>Holdfast</h1>
<p>This server runs LLM agents: {agents}.</p>
<p>In a terminal on this machine:</p>
{commands}
<ul>
{links}
</ul>
</html>
"""
_LINKS = (
    ("docs", "The API, to read and to try"),
    ("openapi.json", "The API as an OpenAPI document, to generate clients from"),
    ("problems", "All error codes, and what to do about each"),
    ("health", "Whether the server can serve requests"),
    ("metrics", "Metrics for Prometheus"),
)


class FirstStep(Struct, frozen=True):
    """A command to try, and what it does."""

    command: str
    effect: str


def first_steps(first_agent: str | None, program: str = "holdfast") -> Sequence[FirstStep]:
    """What to do first on a server. `run` takes its first agent."""
    is_demo = first_agent == _DEMO
    prompt = "refund 80 for order A-7" if is_demo else "Hello! What can you do?"
    return (
        FirstStep(f"{program} run '{prompt}'", "Start a run, watch it, and decide its calls"),
        FirstStep(f"{program} tickets", "See which calls wait for a decision"),
        FirstStep(f"{program} decide approve", "Approve the only one"),
        FirstStep(f"{program} runs", "See all runs"),
    )


def start_page(agents: Sequence[str], steps: Sequence[FirstStep]) -> str:
    """The page at `/` in HTML. Its links are relative, so they work behind a prefix."""
    commands = "\n".join(
        f"<p>{escape(step.effect)}:</p>\n<pre>{escape(step.command)}</pre>" for step in steps
    )
    links = "\n".join(
        f'<li><a href="{path}">{escape(text)}</a> (<code>/{path}</code>)</li>'
        for path, text in _LINKS
    )
    return _PAGE.format(agents=escape(", ".join(agents)), commands=commands, links=links)


def start_text(agents: Sequence[str], steps: Sequence[FirstStep]) -> str:
    """The same for a terminal."""
    lines = [f"This server runs LLM agents: {', '.join(agents)}.", ""]
    lines += [f"{step.effect}:\n  {step.command}" for step in steps]
    lines += ["", *(f"/{path:<14} {text}" for path, text in _LINKS)]
    return "\n".join(lines) + "\n"


@cache
def api_page() -> bytes:
    """The page at `/docs`."""
    page = get_swagger_ui_html(
        openapi_url="openapi.json",
        title="Holdfast: the API",
        swagger_js_url="docs/swagger-ui-bundle.js",
        swagger_css_url="docs/swagger-ui.css",
        swagger_favicon_url=_EMPTY_ICON,
        # Its default sends the document's address to another server.
        swagger_ui_parameters={"validatorUrl": None},
    )
    return bytes(page.body)


@cache
def asset(name: str) -> bytes:
    return (_FOLDER / name).read_bytes()
