"""The embedded server: its promises, and each state that a crash can leave, produced for real."""

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import platformdirs
import psutil
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from app.domain.errors import DatabaseUnusable
from app.embedded_postgres import programs
from app.embedded_postgres.server import EmbeddedPostgres, default_data_dir

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def empty() -> Iterator[Path]:
    with temporary_folder() as path:
        yield path


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with temporary_folder() as path:
        EmbeddedPostgres.start(path, settings={"fsync": "off"}).stop()
        yield path


@pytest.fixture
def folder(made: Path) -> Iterator[Path]:
    """A folder with a stopped cluster. The tests share it, so each must leave it able to start."""
    yield made
    end_strays(made)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    # Not pytest's `tmp_path`: other pytest sessions of this user reset its permissions.
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as parent:
        yield Path(parent) / "pg"
        end_strays(Path(parent))


def end_strays(parent: Path) -> None:
    for path in parent.rglob("postmaster.pid"):
        with suppress(psutil.NoSuchProcess, ValueError, IndexError):
            if str(parent) in " ".join(postmaster(path.parent.parent).cmdline()):
                kill_all(family(path.parent.parent))


# -- queries, processes and waits ------------------------------------------------------------------


def ask(server: EmbeddedPostgres, *statements: str) -> object:
    """Run the statements; the last one's value."""

    async def run() -> object:
        connection = await asyncpg.connect(server.dsn)
        try:
            for statement in statements[:-1]:
                await connection.execute(statement)
            return await connection.fetchval(statements[-1])
        finally:
            await connection.close()

    return asyncio.run(run())


def postmaster(folder: Path) -> psutil.Process:
    """The process that the pid file names. Call it only while the pid file is known to be valid."""
    return psutil.Process(int((folder / "cluster/postmaster.pid").read_text().splitlines()[0]))


def family(folder: Path) -> list[psutil.Process]:
    leader = postmaster(folder)
    return [leader, *leader.children()]


def is_alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: not any(is_alive(process) for process in processes))


def wait_until(condition: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        time.sleep(0.005)


def identity(of: Path) -> dict[str, Any]:
    """Arguments that run a child process as the owner of this path, if we are root."""
    owner = of.stat()
    me = os.geteuid()
    return {} if me else {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def started_by_hand(folder: Path) -> Iterator[psutil.Process]:
    """A server that is our child, so that it stays a zombie when it ends."""
    data = folder / "cluster"
    command: list[str | Path] = [programs._bin() / "postgres", "-D", data, "-k", data]
    with subprocess.Popen(command, **identity(data), stderr=subprocess.DEVNULL) as process:
        pid_file = data / "postmaster.pid"
        wait_until(lambda: pid_file.exists() and "ready" in pid_file.read_text())
        yield psutil.Process(process.pid)


@contextmanager
def other_process(folder: Path, how: str = "hold") -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the server of this folder: `tests/support/embedded_holder.py`."""
    command = [sys.executable, "-m", "tests.support.embedded_holder", how, str(folder)]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_held(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert "held\n" in iter(process.stdout.readline, ""), "it ended before it held the server"


def release_hold(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(timeout=60)


# -- starting and stopping -------------------------------------------------------------------------


def test_start_in_an_empty_folder_creates_a_server_and_stop_ends_it(empty: Path) -> None:
    server = EmbeddedPostgres.start(empty)
    assert str(ask(server, "SHOW server_version")).startswith(programs.MAJOR)
    assert ask(server, "SELECT lower('ÄÖ') || current_setting('fsync')") == "äöon"
    processes = family(empty)
    server.stop()
    assert not any(is_alive(process) for process in processes)
    server.stop()


def test_a_second_start_keeps_the_data_and_the_settings(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder, settings={"max_connections": "37"})
    ask(server, "CREATE TABLE kept AS SELECT 42 AS n", "SELECT 1")
    server.stop()

    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SELECT n FROM kept") == 42
    assert ask(server, "SHOW max_connections") == "37"
    server.stop()

    (folder / "run/settings.json").write_text("{")
    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SHOW fsync") == "on"
    server.stop()

    server = EmbeddedPostgres.start(folder, settings={"fsync": "off"})
    assert ask(server, "SHOW max_connections") == "100"
    server.stop()


def test_joining_a_running_server_with_other_settings_does_not_change_it(folder: Path) -> None:
    first = EmbeddedPostgres.start(folder, settings={"max_connections": "37"})
    second = EmbeddedPostgres.start(folder, settings={"max_connections": "38"})
    assert ask(second, "SHOW max_connections") == "37"
    second.stop()
    first.stop()


def test_an_invalid_setting_is_named_and_not_stored(folder: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="max_connections"):
        EmbeddedPostgres.start(folder, settings={"max_connections": "many"})
    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SELECT 1") == 1
    server.stop()


def test_several_holds_of_one_process_are_counted_like_several_processes(folder: Path) -> None:
    first, second = (EmbeddedPostgres.start(folder) for _ in range(2))
    first.stop()
    first.stop()
    assert ask(second, "SELECT 1") == 1
    leader = postmaster(folder)
    second.stop()
    assert not is_alive(leader)


def test_concurrent_starts_share_one_server_and_the_last_stop_ends_it(
    empty: Path,
) -> None:
    with other_process(empty) as one, other_process(empty) as two:
        server = EmbeddedPostgres.start(empty)
        wait_until_held(one)
        wait_until_held(two)
        leader = postmaster(empty)
        assert release_hold(one) == 0
        server.stop()
        assert is_alive(leader)
        assert release_hold(two) == 0
        assert not is_alive(leader)


def test_a_holder_that_exits_without_stop_leaves_no_server(folder: Path) -> None:
    with other_process(folder, "forget") as process:
        wait_until_held(process)
        leader = postmaster(folder)
        assert release_hold(process) == 0
        assert not is_alive(leader)


def test_stop_ends_a_server_whose_folder_was_removed(empty: Path) -> None:
    server = EmbeddedPostgres.start(empty)
    leader = postmaster(empty)
    shutil.rmtree(empty)
    server.stop()
    assert not is_alive(leader)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_a_web_server_leaves_no_postgres(folder: Path, how: signal.Signals) -> None:
    with other_process(folder, "serve") as process:
        wait_until_held(process)
        processes = family(folder)
        process.send_signal(how)
        process.wait(timeout=60)
    assert not any(is_alive(process) for process in processes)


def test_the_server_inherits_none_of_our_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    monkeypatch.setenv("PGPORT", "1")
    server = EmbeddedPostgres.start(folder)
    environment = ask(
        server,
        "CREATE TEMP TABLE environment (line text)",
        "COPY environment FROM PROGRAM 'env'",
        "SELECT string_agg(line, ' ') FROM environment",
    )
    assert "PATH=" in str(environment)
    assert "secret" not in str(environment)
    server.stop()


# -- its folders -----------------------------------------------------------------------------------


def test_both_urls_connect_for_any_characters_in_the_path(empty: Path) -> None:
    server = EmbeddedPostgres.start(empty / 'it\'s, a $HOME "of" 100% ünïcode')
    assert ask(server, "SELECT 1") == 1

    async def by_sqlalchemy() -> object:
        engine = create_async_engine(server.url)
        async with engine.connect() as connection:
            value = await connection.scalar(text("SELECT 2"))
        await engine.dispose()
        return value

    assert asyncio.run(by_sqlalchemy()) == 2
    server.stop()


def test_other_users_cannot_reach_locks_and_socket(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    assert (folder / "cluster/.s.PGSQL.5432").is_socket()
    assert permissions(folder / "cluster") == 0o700
    assert permissions(folder / "run") == 0o700
    # Root lets the server's user pass through to its data, and no other user list the folder.
    assert permissions(folder.parent) == (0o701 if os.geteuid() == 0 else 0o700)
    server.stop()


def test_a_path_too_long_for_a_socket_gets_a_short_private_socket_folder(empty: Path) -> None:
    long = empty / ("long" * 25)
    server = EmbeddedPostgres.start(long)
    socket_dir = Path(str(ask(server, "SHOW unix_socket_directories")))
    assert socket_dir.parent == Path(tempfile.gettempdir()).resolve()
    assert permissions(socket_dir) == 0o700
    server.stop()
    assert not socket_dir.exists()

    with tempfile.TemporaryDirectory() as elsewhere:
        socket_dir.symlink_to(elsewhere)
        with pytest.raises(DatabaseUnusable, match=f"{socket_dir} belongs to another user"):
            EmbeddedPostgres.start(long)
        socket_dir.unlink()


def test_an_error_says_that_no_socket_folder_is_short_enough(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(empty / ("temp" * 25)))
    with pytest.raises(DatabaseUnusable, match="choose a shorter HOLDFAST_DATA_DIR"):
        EmbeddedPostgres.start(empty / ("long" * 25))


def test_an_error_says_that_a_folder_cannot_be_used(empty: Path) -> None:
    empty.write_text("a file")
    with pytest.raises(DatabaseUnusable, match="set DATABASE_URL"):
        EmbeddedPostgres.start(empty / "pg")


def test_data_of_another_major_version_is_not_changed(folder: Path) -> None:
    version = folder / "cluster/PG_VERSION"
    version.write_text("17\n")
    with pytest.raises(DatabaseUnusable, match="is of Postgres 17"):
        EmbeddedPostgres.start(folder)
    version.write_text(programs.MAJOR)


def test_data_of_root_is_in_a_folder_that_the_servers_user_can_reach(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/holdfast/pg")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == platformdirs.user_data_path("holdfast") / "pg"


def test_without_the_extra_an_error_names_the_package_to_install(tmp_path: Path) -> None:
    """In an interpreter that has only the module's own dependencies."""
    for package in (
        REPOSITORY / "app",
        Path(platformdirs.__file__).parent,
        Path(msgspec.__file__).parent,
    ):
        (tmp_path / package.name).symlink_to(package)
    start = "from app.embedded_postgres.server import *; EmbeddedPostgres.start(default_data_dir())"
    done = subprocess.run(
        [
            sys.executable,
            "-I",
            "-S",
            "-B",
            "-c",
            f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {start}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr.splitlines()[-1].startswith(
        "app.domain.errors.DatabaseUnusable: There is no database: set DATABASE_URL"
    )


# -- after a crash ---------------------------------------------------------------------------------


def test_the_server_of_a_killed_holder_is_joined_by_the_next_start_and_ended_by_its_stop(
    folder: Path,
) -> None:
    with other_process(folder) as process:
        wait_until_held(process)
        leader = postmaster(folder)
        process.kill()
        process.wait()
    assert is_alive(leader)
    server = EmbeddedPostgres.start(folder)
    assert postmaster(folder) == leader
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert not is_alive(leader)


def test_a_stale_pid_file_never_gets_another_process_killed(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    pid_file = folder / "cluster/postmaster.pid"
    original_content = pid_file.read_text()
    kill_all(family(folder))
    # It runs as the server's user, so Postgres itself would refuse to start beside it.
    with subprocess.Popen(["sleep", "1000"], **identity(pid_file)) as unrelated_process:
        try:
            pid_file.write_text(
                original_content.replace(original_content.split()[0], str(unrelated_process.pid), 1)
            )
            again = EmbeddedPostgres.start(folder)
            assert ask(again, "SELECT 1") == 1
            again.stop()
            server.stop()
            assert unrelated_process.poll() is None
        finally:
            unrelated_process.kill()


@pytest.mark.parametrize("content", ["", "999999999\n/some/where", "\0\0\0\0"])
def test_a_truncated_pid_file_does_not_prevent_a_start(folder: Path, content: str) -> None:
    (folder / "cluster/postmaster.pid").write_text(content)
    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SELECT 1") == 1
    server.stop()


def test_a_zombie_process_does_not_count_as_a_server(folder: Path) -> None:
    """Where PID 1 doesn't reap, a dead postmaster stays a zombie. Here this process doesn't reap it."""
    with started_by_hand(folder) as unreaped:
        joined = EmbeddedPostgres.start(folder)
        assert postmaster(folder).pid == unreaped.pid
        joined.stop()
        assert unreaped.status() == psutil.STATUS_ZOMBIE
    with started_by_hand(folder) as unreaped:
        unreaped.kill()
        wait_until(lambda: unreaped.status() == psutil.STATUS_ZOMBIE)
        server = EmbeddedPostgres.start(folder)
        assert ask(server, "SELECT 1") == 1
        assert postmaster(folder).pid != unreaped.pid
        server.stop()


def test_a_query_that_outlived_its_server_is_ended_before_the_next_start(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    ask(server, "CREATE TABLE survivor AS SELECT 42 AS n", "SELECT 1")
    endless = ["-c", "SET statement_timeout = '20s'", "-c", "DO $$ BEGIN LOOP END LOOP; END $$"]
    with subprocess.Popen(
        [programs._bin() / "psql", server.dsn, *endless], stderr=subprocess.DEVNULL
    ):
        busy = "SELECT max(pid) FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"
        wait_until(lambda: ask(server, busy) is not None)
        query = psutil.Process(int(str(ask(server, busy))))
        kill_all([postmaster(folder)])
        assert is_alive(query)
        again = EmbeddedPostgres.start(folder, timeout=60)
        assert not is_alive(query)
    assert ask(again, "SELECT n FROM survivor") == 42
    again.stop()
    server.stop()


def test_start_waits_for_a_long_recovery_and_never_starts_a_second_server(
    folder: Path,
) -> None:
    server = EmbeddedPostgres.start(folder)
    rows = "INSERT INTO written SELECT n, repeat('x', 500) FROM generate_series(1, 50000) n"
    ask(server, "CREATE TABLE written (n int, filler text)", rows, "SELECT 1")
    kill_all(family(folder))

    # The recovery waits for an archive that answers only when this test lets it.
    answer = folder / "answer"
    archive = {
        "restore_command": f"while test -d {folder} -a ! -e {answer}; do sleep 0.1; done; false"
    }
    (folder / "cluster/recovery.signal").touch()
    with pytest.raises(DatabaseUnusable, match="still recovering or stopping"):
        EmbeddedPostgres.start(folder, settings=archive, timeout=1)
    leader = postmaster(folder)
    with ThreadPoolExecutor() as threads:
        joining = threads.submit(EmbeddedPostgres.start, folder)
        with pytest.raises(TimeoutError):
            joining.result(timeout=0.3)
        answer.touch()
        again = joining.result(timeout=60)
    assert postmaster(folder) == leader
    assert ask(again, "SELECT count(*) FROM written") == 50_000
    again.stop()
    server.stop()


def test_a_cluster_whose_creation_was_interrupted_is_created_again(empty: Path) -> None:
    with other_process(empty) as process:
        wait_until(lambda: bool(list(empty.glob("new-*/base"))))
        process.kill()
        process.wait()
    server = EmbeddedPostgres.start(empty)
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert sorted(path.name for path in empty.iterdir()) == ["cluster", "run"]


def test_a_server_with_an_invisible_pid_that_answers_is_not_started_twice(folder: Path) -> None:
    """As when two containers share one folder: the socket is visible, the pids are not."""
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(folder / "cluster/.s.PGSQL.5432"))
        other.listen()
        lines = [
            "999999999",
            str(folder),
            "0",
            "5432",
            str(folder / "cluster"),
            "",
            "1 1",
            "ready",
            "",
        ]
        (folder / "cluster/postmaster.pid").write_text("\n".join(lines))
        with pytest.raises(DatabaseUnusable, match="perhaps in another container"):
            EmbeddedPostgres.start(folder)
