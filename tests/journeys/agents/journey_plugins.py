"""A plugin whose `run_end` hook writes a line into the file that the run's call names."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

from holdfast.plugins import AgentSpec, HookView, Phase, Plugin, PluginConfig, PluginKind, Request


async def clean_up(view: HookView) -> Sequence[Request]:
    """Write a line; with `hold`, wait for the file with the suffix `.open`."""
    [call] = [call for entry in view.log for call in entry.message.tool_calls]
    assert isinstance(call.arguments, dict)
    file = Path(str(call.arguments["file"]))
    _append(file, f"run_end {view.run.id} {os.getpid()}")
    while call.arguments["hold"] and not file.with_name(f"{file.name}.open").exists():
        await asyncio.sleep(0.02)
    return ()


def _append(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def build(_agent: AgentSpec, _config: PluginConfig) -> Plugin:
    return Plugin(name="cleanup", hooks={Phase.RUN_END: clean_up})


cleanup = PluginKind(name="cleanup", config=PluginConfig, build=build)
