"""Tools and a plugin that write down for whom they run."""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from holdfast import RunInfo, ToolContext, tool
from holdfast.plugins import AgentSpec, HookView, Phase, Plugin, PluginConfig, PluginKind, Request


@tool(effect="idempotent")
def who_am_i(file: str, ctx: ToolContext, hold: bool = False) -> dict[str, Any]:
    """Tell for whom it runs."""
    known = asdict(ctx.run)
    _append(file, {"pid": os.getpid(), "run": known})
    while hold and not Path(f"{file}.open").exists():
        time.sleep(0.01)
    return known


@tool(effect="idempotent")
def note(file: str, ctx: ToolContext) -> str:
    """Write down for whom it runs, and tell the model nothing of it."""
    _append(file, {"run": asdict(ctx.run)})
    return "noted"


@tool(effect="unsafe")
async def refund(amount: float, file: str, ctx: ToolContext) -> str:
    """Pay money back, once a person has agreed."""
    given = await ctx.approve(f"Refund {amount:g}?")
    _append(file, {"amount": amount, "pid": os.getpid(), "key": ctx.idempotency_key})
    return f"refunded {amount:g}, as {given.decided_by} agreed"


def _append(file: str, line: dict[str, Any]) -> None:
    with open(file, "a") as out:
        out.write(json.dumps(line) + "\n")


async def write_down(view: HookView) -> Sequence[Request]:
    file = view.run.metadata.get("hooks")
    if isinstance(file, str):
        run: RunInfo = view.run
        _append(file, {"phase": view.phase, "run": asdict(run)})
    return []


def _build(agent: AgentSpec, config: PluginConfig) -> Plugin:
    hooks = {phase: write_down for phase in (Phase.RUN_START, Phase.TOOL_GATE, Phase.RUN_END)}
    return Plugin(name="witness", hooks=hooks)


witness = PluginKind(name="witness", config=PluginConfig, build=_build)
