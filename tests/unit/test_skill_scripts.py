"""Scripts of skills: their processes, environment, output, time limit and cancellation."""

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from textwrap import dedent

import pytest

from app.tools.skills.scripts import MAX_OUTPUT_BYTES, CantRun, ScriptEnd, run_script
from tests.support.conditions import eventually

pytestmark = pytest.mark.anyio
LONG = 60.0
"""No test waits that long."""


async def end_of(folder: Path, text: str, *arguments: str, name: str = "it.py") -> ScriptEnd:
    script = folder / name
    script.write_text(dedent(text))
    return await run_script(script, arguments, folder=folder, timeout=LONG)


async def test_a_script_gets_its_arguments_and_returns_its_output(tmp_path: Path) -> None:
    text = "import sys; print(sys.argv[1:]); print('bad', file=sys.stderr); sys.exit(3)"
    end = await end_of(tmp_path, text, "a b", "; ls")
    assert end == ScriptEnd(3, "['a b', '; ls']\n", "bad\n")


async def test_a_script_gets_no_secrets_and_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:s3cret@db")
    text = "import os; print(os.listdir()); print(os.environ); print(os.environ['SKILL_DIR'])"
    end = await end_of(tmp_path, text)
    first, environ, last = end.output.splitlines()
    assert (first, last) == ("[]", str(tmp_path))
    assert "s3cret" not in environ
    assert "DATABASE_URL" not in environ


async def test_long_output_is_cut(tmp_path: Path) -> None:
    text = f"import sys; print('x' * {3 * MAX_OUTPUT_BYTES}); sys.stderr.buffer.write(b'\\xff')"
    end = await end_of(tmp_path, text)
    assert end.exit_code == 0
    assert end.output == "x" * MAX_OUTPUT_BYTES + "\n[The rest is left out]"
    assert end.errors == "\N{REPLACEMENT CHARACTER}"


async def test_a_script_has_no_input(tmp_path: Path) -> None:
    end = await end_of(tmp_path, "import sys; print(repr(sys.stdin.read()))")
    assert end.output == "''\n"


async def test_a_shell_script_runs_without_being_executable(tmp_path: Path) -> None:
    assert (await end_of(tmp_path, "echo $1", "hi", name="it.sh")).output == "hi\n"


async def test_a_program_has_to_be_executable(tmp_path: Path) -> None:
    text = "#!/bin/sh\necho ran\n"
    with pytest.raises(CantRun, match="isn't executable; give it that right"):
        await end_of(tmp_path, text, name="it")
    (tmp_path / "it").chmod(0o755)
    assert (await end_of(tmp_path, text, name="it")).output == "ran\n"


async def test_an_argument_that_no_process_can_get_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CantRun, match="can't be started"):
        await end_of(tmp_path, "", "a\0b")


async def test_a_script_is_ended_at_the_time_limit_with_what_it_printed(tmp_path: Path) -> None:
    script = tmp_path / "it.sh"
    script.write_text("sleep 1000 & wait")
    end = await run_script(script, [], folder=tmp_path, timeout=0.01)
    assert end.exit_code is None


async def test_cancelling_a_call_ends_the_script_and_its_processes(tmp_path: Path) -> None:
    script = tmp_path / "it.sh"
    started = tmp_path / "pids"
    script.write_text(
        f'sleep 1000 & echo "$$ $!" > {started}.new; mv {started}.new {started}; wait'
    )

    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await run_script(script, [], folder=tmp_path, timeout=LONG)

    async def has_started() -> bool:
        return started.exists()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        await eventually(has_started)
        running.cancel()
    pids = [int(pid) for pid in started.read_text().split()]

    async def have_ended() -> bool:
        return not any(map(_lives, pids))

    await eventually(have_ended)


async def test_cancelling_a_call_while_its_process_starts_ends_it(tmp_path: Path) -> None:
    """The process is started in the first step of the call, and cancelled before a second one."""
    script, started = tmp_path / "it.sh", tmp_path / "pid"
    script.write_text(f"sleep 1000 & echo $! > {started}.new; mv {started}.new {started}; wait")

    async def run() -> None:
        with suppress(asyncio.CancelledError):
            await run_script(script, [], folder=tmp_path, timeout=LONG)

    def cancel() -> None:
        running.cancel()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(run())
        asyncio.get_running_loop().call_soon(cancel)
    assert not started.exists() or await _eventually_ended(int(started.read_text()))


async def test_processes_that_a_script_leaves_behind_are_ended(tmp_path: Path) -> None:
    end = await end_of(tmp_path, "sleep 1000 & echo $!", name="it.sh")
    pid = int(end.output)

    assert await _eventually_ended(pid)


async def _eventually_ended(pid: int) -> bool:
    async def has_ended() -> bool:
        return not _lives(pid)

    return await eventually(has_ended)


def _lives(pid: int) -> bool:
    """Whether the process runs. A dead one may wait for its parent."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state not in ("Z", "X")
