"""Which processes serve a cluster: asked of the process table, never of a pid file.

A pid file outlives its process, and its number may by then be anybody's; in a container, where pids
are small, it soon is. So a process is ours if it is called postgres and carries the cluster's mark,
which the server writes into the title of all its children (`cluster_name`). A zombie has no command
line left and is nobody's: where PID 1 doesn't reap, the dead stay in the table for ever.
"""

import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

POLL_INTERVAL_SECONDS = 0.02


def postmaster_of(cluster: Path, mark: str) -> psutil.Process | None:
    """The process that leads the server of this cluster, if it lives."""
    family = _family(cluster, mark)
    for process, title in family.items():
        with suppress(psutil.NoSuchProcess):
            # A child that was just forked still shows its parent's command line.
            if not title.startswith("postgres: ") and process.parent() not in family:
                return process
    return None


def end_orphans(cluster: Path, mark: str, patience: float) -> list[int]:
    """End backends that outlived their postmaster, as Postgres asks for; returns those that refuse.

    A long query doesn't notice the death. Two servers on one folder would destroy it, so no new one
    may start as long as such a process is there. Only to be called when there is no postmaster.
    """
    orphans = list(_family(cluster, mark))
    for process in orphans:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGQUIT)
    return [process.pid for process in wait_for_exit(orphans, patience)]


def shut_down(postmaster: psutil.Process, patience: float) -> None:
    """End sessions and write a checkpoint; if that takes too long, leave the rest to a recovery.

    By signal, because `pg_ctl stop` takes its pid from the file.
    """
    for how in (signal.SIGINT, signal.SIGQUIT):
        with suppress(psutil.NoSuchProcess):
            postmaster.send_signal(how)
        if not wait_for_exit([postmaster], patience):
            return


def wait_for_exit(processes: Iterable[psutil.Process], patience: float) -> list[psutil.Process]:
    """Wait until they are gone or zombies; returns those that still live when patience ends."""
    deadline = time.monotonic() + patience
    living = [process for process in processes if _lives(process)]
    while living and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_SECONDS)
        living = [process for process in living if _lives(process)]
    return living


def _family(cluster: Path, mark: str) -> dict[psutil.Process, str]:
    found = {}
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "postgres":
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                command = process.cmdline()
                title = " ".join(command)
                # The path is for a server that somebody started by hand.
                if mark in title or str(cluster) in command:
                    found[process] = title
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
