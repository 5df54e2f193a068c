"""The names by which models call the tools of MCP servers, and digests of their descriptions."""

import re
import unicodedata

from app.domain.agents.mcp_references import MCP_JOINT
from app.domain.json_values import JsonObject, digest

MAX_CHARACTERS = 64
_DIGEST_CHARACTERS = 6
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_INVISIBLE = frozenset({"Cc", "Cf", "Co", "Cs"})
_SPACES = "\n\t"


def model_name(server: str, tool: str) -> str:
    """The name for models. One that providers don't accept is mended, and gets a digest of the original."""
    name = f"{server}{MCP_JOINT}{_FORBIDDEN.sub('_', tool)}"
    if len(name) <= MAX_CHARACTERS and not _FORBIDDEN.search(tool):
        return name
    head = name[: MAX_CHARACTERS - _DIGEST_CHARACTERS - 1]
    return f"{head}_{digest(tool).rpartition(':')[2][:_DIGEST_CHARACTERS]}"


def prefix_of(server: str) -> str:
    """The beginning of all names of a server's tools."""
    return f"{server}{MCP_JOINT}"


def digest_of(described: JsonObject) -> str:
    """A digest of all that a server says about a tool. A change of it is shown as drift."""
    return digest(dict(described))


def visible(text: str) -> str:
    """The text without characters that people don't see but models read."""
    return "".join(
        each for each in text if each in _SPACES or unicodedata.category(each) not in _INVISIBLE
    )
