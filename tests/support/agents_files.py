"""Loads agents files from text, and collects their problems."""

from pathlib import Path
from textwrap import dedent

import pytest

from app.agents.catalog import Catalog, load_catalog
from app.domain.errors import ConfigurationError

MODELS = """
[models.fast]
provider = "openai"
model = "fast-1"
base_url = "http://127.0.0.1:9/v1"
api_key = "unused"
"""

TOOLS = """
from holdfast import tool

@tool
async def add(a: int, b: int) -> int:
    return a + b

@tool(effect="read")
def look() -> str:
    return "seen"
"""

AGENT = """
[agents.helper]
model = "fast"
"""


def load(folder: Path, text: str, **more: str) -> Catalog:
    file = folder / "agents.toml"
    file.write_text(text)
    for name, source in more.items():
        place = folder / f"{name}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(dedent(source))
    return load_catalog(file)


def problems(folder: Path, text: str, **more: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text, **more)
    lines = str(caught.value).splitlines()
    start = f"{folder / 'agents.toml'}: "
    assert all(line.startswith(start) for line in lines)
    return [line.removeprefix(start) for line in lines]
