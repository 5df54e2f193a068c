"""The fake model provider as a process that a test can start and ask."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Stats:
    """Counted since its start; connections are those that made a request for an answer."""

    connections: int
    requests: int
    closed_early: int


@dataclass(frozen=True, slots=True)
class FakeProvider:
    port: int

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def base_url(self) -> str:
        """Where the OpenAI-compatible wire is; Anthropic's begins at the origin."""
        return f"{self.origin}/v1"

    def asked(self) -> dict[str, Any]:
        """The body of the last request for an answer."""
        body: dict[str, Any] = httpx2.get(f"{self.origin}/asked", timeout=10).json()
        return body

    def be(self, mood: str) -> None:
        """Fail every third answer from now on in one of the ways that it has; none with an empty one."""
        httpx2.get(f"{self.origin}/mood/{mood}", timeout=10).raise_for_status()

    def stats(self, *, closed_early: int = 0) -> Stats:
        """Waits until that many clients have closed their socket before their answer was over."""
        params = {"closed_early": str(closed_early)}
        answer = httpx2.get(f"{self.origin}/stats", params=params, timeout=10)
        return Stats(**answer.json())


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    """Runs it until the context is left, or until we die, however we die."""
    command = [sys.executable, "-m", "tests.support.fake_openai", "--until-stdin-closes"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        port = process.stdout.readline()
        assert port, "the fake provider didn't start"
        try:
            yield FakeProvider(int(port))
        finally:
            process.kill()
