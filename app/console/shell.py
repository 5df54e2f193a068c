"""The HTML of every page: it names the page's files. It has no data, so it needs no API key."""

from functools import cache
from html import escape
from pathlib import Path
from string import Template

from app.console.assets import Assets

_TEMPLATES = Path(__file__).parent / "templates"


def shell(assets: Assets, page: str, prefix: str) -> str:
    """The page `page`, whose addresses begin with `prefix`."""
    files = assets.pages[page]
    base = escape(f"{prefix}/console/assets/")
    return _template("shell.html").substitute(
        page=escape(page),
        prefix=escape(prefix),
        theme=base + assets.theme,
        style=base + assets.style,
        icon=base + assets.icon,
        script=base + files.script,
        preload="\n".join(
            f'<link rel="modulepreload" href="{base}{name}">' for name in files.preload
        ),
    )


def not_built() -> str:
    """The page in place of a console that isn't built."""
    return _template("not_built.html").substitute()


@cache
def _template(name: str) -> Template:
    return Template((_TEMPLATES / name).read_text())
