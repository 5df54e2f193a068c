"""Tools that Anthropic itself runs. A model has none unless its options name them."""

from typing import Any

from app.domain.errors import ConfigurationError

OPTION = "native_tools"
_TOOLS: dict[str, tuple[dict[str, Any], str | None]] = {
    "web_search": ({"type": "web_search_20250305", "name": "web_search"}, None),
    "web_fetch": (
        {"type": "web_fetch_20250910", "name": "web_fetch", "citations": {"enabled": True}},
        "web-fetch-2025-09-10",
    ),
    "code_execution": (
        {"type": "code_execution_20250825", "name": "code_execution"},
        "code-execution-2025-08-25",
    ),
}
"""The tool as the API describes it, and the beta that it needs."""


def native_tools_of(names: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The tools with these names, in their order, and the betas that they need."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigurationError(f"options.{OPTION} must be a list of names")
    for name in names:
        if name not in _TOOLS:
            known = ", ".join(sorted(_TOOLS))
            raise ConfigurationError(f"options.{OPTION} names {name!r}; there are: {known}")
    found = [_TOOLS[name] for name in dict.fromkeys(names)]
    return [tool for tool, _ in found], [beta for _, beta in found if beta is not None]
