"""The embedded server: what it promises, and every state that a crash can leave, made for real."""

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
    with place() as path:
        yield path


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    with place() as path:
        EmbeddedPostgres.start(path, settings={"fsync": "off"}).stop()
        yield path


@pytest.fixture
def folder(made: Path) -> Iterator[Path]:
    """With a stopped cluster in it. The tests share it: whatever they do, it must come up again."""
    yield made
    end_strays(made)


@contextmanager
def place() -> Iterator[Path]:
    # Not pytest's own: its permissions are reset by every other session of the same user.
    with tempfile.TemporaryDirectory(prefix="holdfast-test-") as parent:
        yield Path(parent) / "pg"
        end_strays(Path(parent))


def end_strays(parent: Path) -> None:
    for path in parent.rglob("postmaster.pid"):
        with suppress(psutil.NoSuchProcess, ValueError, IndexError):
            if str(parent) in " ".join(postmaster(path.parent.parent).cmdline()):
                kill_all(family(path.parent.parent))


# -- looking and waiting ------------------------------------------------------------------------


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
    """The process that the pid file names; only to be asked when that is known to be true."""
    return psutil.Process(int((folder / "cluster/postmaster.pid").read_text().splitlines()[0]))


def family(folder: Path) -> list[psutil.Process]:
    leader = postmaster(folder)
    return [leader, *leader.children()]


def lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    wait_until(lambda: not any(lives(process) for process in processes))


def wait_until(true: Callable[[], bool], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def identity(of: Path) -> dict[str, Any]:
    """What makes a child process run as the owner of this, if we are root."""
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


def let_go(process: subprocess.Popen[str]) -> int:
    assert process.stdin is not None
    process.stdin.close()
    return process.wait(timeout=15)


# -- starting and stopping ----------------------------------------------------------------------


def test_a_start_in_an_empty_place_makes_a_server_and_stop_ends_it(empty: Path) -> None:
    server = EmbeddedPostgres.start(empty)
    assert str(ask(server, "SHOW server_version")).startswith(programs.MAJOR)
    assert ask(server, "SELECT lower('ÄÖ') || current_setting('fsync')") == "äöon"
    processes = family(empty)
    server.stop()
    assert not any(lives(process) for process in processes)
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


def test_joining_a_running_server_with_other_settings_leaves_it_as_it_is(folder: Path) -> None:
    first = EmbeddedPostgres.start(folder, settings={"max_connections": "37"})
    second = EmbeddedPostgres.start(folder, settings={"max_connections": "38"})
    assert ask(second, "SHOW max_connections") == "37"
    second.stop()
    first.stop()


def test_a_bad_setting_is_named_and_not_remembered(folder: Path) -> None:
    with pytest.raises(DatabaseUnusable, match="max_connections"):
        EmbeddedPostgres.start(folder, settings={"max_connections": "many"})
    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SELECT 1") == 1
    server.stop()


def test_holds_of_one_process_count_like_those_of_many(folder: Path) -> None:
    first, second = (EmbeddedPostgres.start(folder) for _ in range(2))
    first.stop()
    first.stop()
    assert ask(second, "SELECT 1") == 1
    leader = postmaster(folder)
    second.stop()
    assert not lives(leader)


def test_processes_that_start_at_once_share_one_server_and_the_last_one_out_stops_it(
    empty: Path,
) -> None:
    with other_process(empty) as one, other_process(empty) as two:
        server = EmbeddedPostgres.start(empty)
        wait_until_held(one)
        wait_until_held(two)
        leader = postmaster(empty)
        assert let_go(one) == 0
        server.stop()
        assert lives(leader)
        assert let_go(two) == 0
        assert not lives(leader)


def test_a_holder_that_forgets_to_let_go_leaves_no_server(folder: Path) -> None:
    with other_process(folder, "forget") as process:
        wait_until_held(process)
        leader = postmaster(folder)
        assert let_go(process) == 0
        assert not lives(leader)


def test_stop_ends_a_server_whose_folder_was_removed(empty: Path) -> None:
    server = EmbeddedPostgres.start(empty)
    leader = postmaster(empty)
    shutil.rmtree(empty)
    server.stop()
    assert not lives(leader)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_a_web_server_leaves_no_postgres(folder: Path, how: signal.Signals) -> None:
    with other_process(folder, "serve") as process:
        wait_until_held(process)
        processes = family(folder)
        process.send_signal(how)
        process.wait(timeout=15)
    assert not any(lives(process) for process in processes)


def test_the_server_gets_nothing_of_our_environment(
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


# -- where it lives -----------------------------------------------------------------------------


def test_both_addresses_connect_whatever_the_path_looks_like(empty: Path) -> None:
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


def test_locks_and_socket_are_out_of_reach_for_others(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    assert (folder / "cluster/.s.PGSQL.5432").is_socket()
    assert permissions(folder / "cluster") == 0o700
    assert permissions(folder / "run") == 0o700
    # Root lets the server's user pass through to its data; nobody gets to list what is there.
    assert permissions(folder.parent) == (0o701 if os.geteuid() == 0 else 0o700)
    server.stop()


def test_a_path_too_long_for_a_socket_gets_a_short_and_private_place(empty: Path) -> None:
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


def test_no_place_short_enough_is_said(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(empty / ("temp" * 25)))
    with pytest.raises(DatabaseUnusable, match="choose a shorter HOLDFAST_DATA_DIR"):
        EmbeddedPostgres.start(empty / ("long" * 25))


def test_a_place_that_cannot_be_used_is_said(empty: Path) -> None:
    empty.write_text("a file")
    with pytest.raises(DatabaseUnusable, match="set DATABASE_URL"):
        EmbeddedPostgres.start(empty / "pg")


def test_data_of_another_major_version_is_left_alone(folder: Path) -> None:
    version = folder / "cluster/PG_VERSION"
    version.write_text("17\n")
    with pytest.raises(DatabaseUnusable, match="is of Postgres 17"):
        EmbeddedPostgres.start(folder)
    version.write_text(programs.MAJOR)


def test_root_keeps_its_data_where_the_servers_user_can_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert default_data_dir() == Path("/var/lib/holdfast/pg")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert default_data_dir() == platformdirs.user_data_path("holdfast") / "pg"


def test_without_the_extra_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    """In an interpreter that has nothing installed but what the module itself needs."""
    for package in (REPOSITORY / "app", Path(platformdirs.__file__).parent):
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


# -- after a crash ------------------------------------------------------------------------------


def test_a_killed_holder_leaves_a_server_that_the_next_start_joins_and_its_stop_ends(
    folder: Path,
) -> None:
    with other_process(folder) as process:
        wait_until_held(process)
        leader = postmaster(folder)
        process.kill()
        process.wait()
    assert lives(leader)
    server = EmbeddedPostgres.start(folder)
    assert postmaster(folder) == leader
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert not lives(leader)


def test_a_stale_pid_file_never_costs_the_life_of_another_process(folder: Path) -> None:
    server = EmbeddedPostgres.start(folder)
    pid_file = folder / "cluster/postmaster.pid"
    truth = pid_file.read_text()
    kill_all(family(folder))
    # It runs as the server's user: Postgres itself would refuse to start next to it.
    with subprocess.Popen(["sleep", "1000"], **identity(pid_file)) as innocent:
        try:
            pid_file.write_text(truth.replace(truth.split()[0], str(innocent.pid), 1))
            again = EmbeddedPostgres.start(folder)
            assert ask(again, "SELECT 1") == 1
            again.stop()
            server.stop()
            assert innocent.poll() is None
        finally:
            innocent.kill()


@pytest.mark.parametrize("content", ["", "999999999\n/some/where", "\0\0\0\0"])
def test_a_pid_file_cut_short_by_a_crash_is_no_obstacle(folder: Path, content: str) -> None:
    (folder / "cluster/postmaster.pid").write_text(content)
    server = EmbeddedPostgres.start(folder)
    assert ask(server, "SELECT 1") == 1
    server.stop()


def test_a_zombie_is_no_server(folder: Path) -> None:
    """Where PID 1 doesn't reap, a dead postmaster stays; here it is this process that doesn't."""
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


def test_a_query_that_outlived_its_server_is_ended_before_the_next_one_starts(folder: Path) -> None:
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
        assert lives(query)
        again = EmbeddedPostgres.start(folder, patience=10)
        assert not lives(query)
    assert ask(again, "SELECT n FROM survivor") == 42
    again.stop()
    server.stop()


def test_a_server_that_recovers_for_long_is_waited_for_and_never_started_twice(
    folder: Path,
) -> None:
    server = EmbeddedPostgres.start(folder)
    rows = "INSERT INTO written SELECT n, repeat('x', 500) FROM generate_series(1, 50000) n"
    ask(server, "CREATE TABLE written (n int, filler text)", rows, "SELECT 1")
    kill_all(family(folder))

    # A recovery from an archive that doesn't answer until it may: it lasts as long as we like.
    answer = folder / "answer"
    archive = {
        "restore_command": f"while test -d {folder} -a ! -e {answer}; do sleep 0.1; done; false"
    }
    (folder / "cluster/recovery.signal").touch()
    with pytest.raises(DatabaseUnusable, match="still recovering, or stopping"):
        EmbeddedPostgres.start(folder, settings=archive, patience=1)
    leader = postmaster(folder)
    with ThreadPoolExecutor() as threads:
        joining = threads.submit(EmbeddedPostgres.start, folder)
        with pytest.raises(TimeoutError):
            joining.result(timeout=0.3)
        answer.touch()
        again = joining.result(timeout=15)
    assert postmaster(folder) == leader
    assert ask(again, "SELECT count(*) FROM written") == 50_000
    again.stop()
    server.stop()


def test_a_start_that_died_while_it_made_the_cluster_is_made_anew(empty: Path) -> None:
    with other_process(empty) as process:
        wait_until(lambda: bool(list(empty.glob("new-*/base"))))
        process.kill()
        process.wait()
    server = EmbeddedPostgres.start(empty)
    assert ask(server, "SELECT 1") == 1
    server.stop()
    assert sorted(path.name for path in empty.iterdir()) == ["cluster", "run"]


def test_a_server_that_is_out_of_sight_but_answers_is_not_started_twice(folder: Path) -> None:
    """As when two containers share one folder: the other's socket can be seen, its pids can't."""
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
        with pytest.raises(DatabaseUnusable, match="can't be seen from here"):
            EmbeddedPostgres.start(folder)
