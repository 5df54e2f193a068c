"""What one more process costs: the time until it serves, the CPU for it, and its memory."""

from pathlib import Path
from statistics import median

import psutil

from bench import processes
from bench.table import Line, Mark, megabytes, milliseconds

STARTS = 3

CPU = Mark("<= 1.1 s", most=1.1)
MEMORY = Mark("<= 92 MB", most=92_000_000)
"""A third less than when this row was added."""


async def start(folder: Path, database_url: str, agents: Path) -> list[Line]:
    """Start further servers on a database that has the schema already, one after the other."""
    seconds, cpu, memory = [], [], []
    settings = {"HOLDFAST_AGENTS": str(agents), "DATABASE_URL": database_url}
    for _ in range(STARTS):
        async with processes.holdfast(folder, settings) as server:
            started = psutil.Process(server.pid)
            seconds.append(processes.age(started))
            spent = started.cpu_times()
            cpu.append(spent.user + spent.system)
            memory.append(started.memory_info().rss)
    return [
        Line("until it serves", milliseconds(median(seconds))),
        Line("CPU until it serves", milliseconds(median(cpu)), mark=CPU, judged=median(cpu)),
        Line("its memory then", megabytes(median(memory)), mark=MEMORY, judged=median(memory)),
    ]
