"""Pages about error codes. The `type` of an error is the address of its page, which needs no network."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from html import escape
from pathlib import Path

from app.http.error_codes import CODES, CODES_BEFORE_ROUTES

PATH = "/problems"

_ALL_CODES = {**CODES, **CODES_BEFORE_ROUTES}
_LINK = re.compile(r"\[([^\]]+)\]\([^)]+\)")
_CODE = re.compile(r"`([^`]+)`")
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 42rem; margin: 2rem auto; padding: 0 1rem; }}
  code {{ font-family: ui-monospace, monospace; }}
  td {{ padding: 0.2rem 1rem 0.2rem 0; vertical-align: top; }}
</style>
{body}
</html>
"""


def type_of(code: str) -> str:
    """The `type` of an error: a path on the server that answered."""
    return f"{PATH}/{code}"


@cache
def remedies() -> Mapping[str, str]:
    """What to do about each code, in Markdown."""
    return tomllib.loads((Path(__file__).parent / "remedies.toml").read_text())


def page_of(code: str) -> str | None:
    """The page of a code; None if there is no such code."""
    if code not in _ALL_CODES:
        return None
    status, meaning = _ALL_CODES[code]
    return _PAGE.format(
        title=escape(code),
        body=f"<h1><code>{escape(code)}</code></h1>\n"
        f"<p>Status {status}: {_html(meaning)}.</p>\n"
        f"<p>{_html(remedies()[code])}</p>\n"
        f'<p><a href="{PATH}">All error codes</a></p>',
    )


def index() -> str:
    """The page that lists all codes."""
    rows = "\n".join(
        f'<tr><td><a href="{type_of(code)}"><code>{escape(code)}</code></a></td>'
        f"<td>{status}</td><td>{_html(meaning)}</td></tr>"
        for code, (status, meaning) in sorted(_ALL_CODES.items())
    )
    return _PAGE.format(title="Errors", body=f"<h1>Errors</h1>\n<table>\n{rows}\n</table>")


def _html(markdown: str) -> str:
    """Text with code in HTML. Links become their texts, because they lead into the documentation."""
    return _CODE.sub(r"<code>\1</code>", escape(_LINK.sub(r"\1", markdown), quote=False))
