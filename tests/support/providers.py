"""Starts the fake model provider as a process, and reads its counters."""

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
    """Counters since its start; `connections` counts those with a request for an answer."""

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
        """The base URL of the OpenAI-compatible API; Anthropic's begins at the origin."""
        return f"{self.origin}/v1"

    def asked(self) -> dict[str, Any]:
        """The body of the last request for an answer."""
        body: dict[str, Any] = httpx2.get(f"{self.origin}/asked", timeout=10).json()
        return body

    def be(self, mood: str) -> None:
        """Make every third answer fail with this kind of chaos; an empty kind ends it."""
        httpx2.get(f"{self.origin}/mood/{mood}", timeout=10).raise_for_status()

    def stats(self, *, closed_early: int = 0) -> Stats:
        """Waits until that many clients have closed their socket early."""
        params = {"closed_early": str(closed_early)}
        answer = httpx2.get(f"{self.origin}/stats", params=params, timeout=10)
        return Stats(**answer.json())


@contextmanager
def fake_provider() -> Iterator[FakeProvider]:
    """Runs it until the context ends or this process dies."""
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
