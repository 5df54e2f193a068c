"""Finds the server processes of a cluster in the process table, not by pid files.

A pid file outlives its process, and another process may get its number, soon in a container. A process belongs to
the cluster if it is called postgres and its title has the cluster's mark (`cluster_name`). Zombies have no command
line, so they don't count: where PID 1 doesn't reap, they stay for ever.
"""

import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

POLL_INTERVAL_SECONDS = 0.02


def postmaster_of(cluster: Path, mark: str) -> psutil.Process | None:
    """The living main process of this cluster's server, if any."""
    found = _processes_of(cluster, mark)
    for process, title in found.items():
        with suppress(psutil.NoSuchProcess):
            # A child that was just forked still shows the command line of its parent.
            if not title.startswith("postgres: ") and process.parent() not in found:
                return process
    return None


def end_orphans(cluster: Path, mark: str, timeout: float) -> list[int]:
    """End backends that outlived their postmaster; returns the pids of those that don't end.

    A long query doesn't notice that the postmaster died. Two servers on one folder would destroy the data, so no
    server may start while such a backend lives. Call only if there is no postmaster.
    """
    orphans = list(_processes_of(cluster, mark))
    for process in orphans:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGQUIT)
    return [process.pid for process in wait_for_exit(orphans, timeout)]


def shut_down(postmaster: psutil.Process, timeout: float) -> None:
    """Shut down with a checkpoint; after the time-out immediately, so that the next start recovers.

    By signal, because `pg_ctl stop` takes the pid from the pid file.
    """
    for how in (signal.SIGINT, signal.SIGQUIT):
        with suppress(psutil.NoSuchProcess):
            postmaster.send_signal(how)
        if not wait_for_exit([postmaster], timeout):
            return


def wait_for_exit(processes: Iterable[psutil.Process], timeout: float) -> list[psutil.Process]:
    """Wait until they have ended or are zombies; returns those that live after the time-out."""
    deadline = time.monotonic() + timeout
    living = [process for process in processes if _is_alive(process)]
    while living and time.monotonic() < deadline:
        time.sleep(POLL_INTERVAL_SECONDS)
        living = [process for process in living if _is_alive(process)]
    return living


def _processes_of(cluster: Path, mark: str) -> dict[psutil.Process, str]:
    found = {}
    for process in psutil.process_iter(["name"]):
        if process.info["name"] == "postgres":
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                command = process.cmdline()
                title = " ".join(command)
                # A server that was started by hand has the path but no mark.
                if mark in title or str(cluster) in command:
                    found[process] = title
    return found


def _is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
