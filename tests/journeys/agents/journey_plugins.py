"""A plugin whose every `run_end` hook can be counted, and held: a line in the file that its run's call names."""

import os
from collections.abc import Sequence
from pathlib import Path

from app.builtin_plugins.kinds import PluginConfig, PluginKind
from app.clock import sleep
from app.domain.agents.specs import AgentSpec
from app.runtime.plugins import HookView, Phase, Plugin, Request


async def clean_up(view: HookView) -> Sequence[Request]:
    """Leave a line; with `hold` return once the file's `.open` is there."""
    [call] = [call for entry in view.log for call in entry.message.tool_calls]
    assert isinstance(call.arguments, dict)
    file = Path(str(call.arguments["file"]))
    _leave_a_line(file, f"run_end {view.run_id} {os.getpid()}")
    while call.arguments["hold"] and not file.with_name(f"{file.name}.open").exists():
        await sleep(0.02)
    return ()


def _leave_a_line(file: Path, line: str) -> None:
    with file.open("a") as lines:
        lines.write(f"{line}\n")


def build(_agent: AgentSpec, _config: PluginConfig) -> Plugin:
    return Plugin(name="cleanup", hooks={Phase.RUN_END: clean_up})


cleanup = PluginKind(name="cleanup", config=PluginConfig, build=build)
