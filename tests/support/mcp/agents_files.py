"""Agents files with the shop of `tests/support/mcp/shop.py` as an MCP server, under one or several names."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHOP = Path(__file__).with_name("shop.py")
KEY = "k" * 32


def with_shop(
    folder: Path, payments: Path, servers: Mapping[str, Mapping[str, Any]], **variables: str
) -> Path:
    """Write a file with one agent for each server, and the agent `both` with the tools of all."""
    folder.mkdir(exist_ok=True)
    env = {"SHOP_FILE": str(payments), "SHOP_KEY": KEY, **variables}
    tables = ["[models.script]\nprovider = 'scripted'\nscript = 'plain'\ndelay_ms = 1"]
    for name, more in servers.items():
        program = {"command": sys.executable, "args": [str(SHOP)]}
        keys = {**({} if "url" in more else program), "startup_timeout": 50, **more}
        own = {**env, **keys.pop("env", {})}
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        if "url" not in more:
            pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in own.items())
            lines.append(f"env = {{ {pairs} }}")
        tables.append("\n".join([f"[mcp.{name}]", *lines]))
        tables.append(f"[agents.{name}]\nmodel = 'script'\ntools = ['{name}/*']")
    every = json.dumps([f"{name}/*" for name in servers])
    tables.append(f"[agents.both]\nmodel = 'script'\ntools = {every}")
    file = folder / "agents.toml"
    file.write_text("\n\n".join(tables) + "\n")
    return file
