"""The machine on which the figures were measured."""

import os
import platform
from importlib.metadata import version

import psutil

from bench.database import Postgres
from bench.table import megabytes, milliseconds


async def machine(postgres: Postgres | None) -> str:
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    lines = [
        f"{os.cpu_count()} cores ({_processor()}), {megabytes(psutil.virtual_memory().total)} of "
        f"memory, {platform.system()} {platform.release()}, load {load} before the start",
        f"Holdfast {version('holdfast-server')}, Python {platform.python_version()}",
    ]
    if postgres is not None:
        commit = milliseconds(await postgres.commit_seconds())
        lines.append(f"{await postgres.facts()}; an empty commit takes {commit}")
    chosen = sorted(name for name in os.environ if name.startswith("HOLDFAST_"))
    if chosen:
        lines.append(f"Not at their defaults: {', '.join(chosen)}")
    return "\n".join(lines)


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
