"""An nginx of one test, with its defaults: it buffers, and speaks HTTP/1.0 to servers."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.conditions import eventually
from tests.support.ports import free_port
from tests.system.programs import program

_CONFIGURATION = """
daemon off;
{user}
worker_processes 1;
pid {folder}/pid;
error_log {folder}/error.log notice;
events {{ worker_connections 10000; }}
http {{
    access_log off;
    client_body_temp_path {folder}/bodies;
    proxy_temp_path {folder}/answers;
    fastcgi_temp_path {folder}/unused-1;
    uwsgi_temp_path {folder}/unused-2;
    scgi_temp_path {folder}/unused-3;
    upstream holdfast {{
{servers}
    }}
    server {{
        listen 127.0.0.1:{port};
        {more}
        location / {{
            proxy_pass http://holdfast;
            proxy_set_header Host $http_host;
            {proxying}
        }}
    }}
}}
"""


class Nginx:
    """One server block before some servers.

    `each` are options of every upstream server, `proxying` directives of the proxied
    location, `more` further directives of the server block.
    """

    def __init__(
        self,
        folder: Path,
        targets: Sequence[int],
        *,
        each: str = "",
        proxying: str = "",
        more: str = "",
    ) -> None:
        self.port = free_port()
        self._folder = folder
        self._each = each
        self._proxying = proxying
        self._more = more
        self._process: asyncio.subprocess.Process | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.point_to(targets)

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self._folder / "error.log").read_text()

    def point_to(self, targets: Sequence[int]) -> None:
        """Where requests go, from the next start or reload on."""
        servers = "\n".join(f"        server 127.0.0.1:{port} {self._each};" for port in targets)
        text = _CONFIGURATION.format(
            folder=self._folder,
            user="user root;" if os.geteuid() == 0 else "",
            port=self.port,
            servers=servers,
            proxying=self._proxying,
            more=self._more,
        )
        (self._folder / "nginx.conf").write_text(text)

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            program("nginx"), "-p", self._folder, "-c", "nginx.conf", "-e", "error.log"
        )
        await eventually(self._answers)

    async def reload(self) -> None:
        """New workers take new connections; the old ones keep their open ones."""
        before = self.log.count("gracefully shutting down")
        self._signal(signal.SIGHUP)

        async def handed_over() -> bool:
            return self.log.count("gracefully shutting down") > before

        await eventually(handed_over)
        await eventually(self._answers)

    async def stop(self) -> None:
        """Stop at once: open connections break."""
        if self._process is not None:
            self._signal(signal.SIGTERM)
            await self._process.wait()
            self._process = None

    def _signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.returncode is None, self.log
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@asynccontextmanager
async def proxying(nginx: Nginx) -> AsyncIterator[Nginx]:
    await nginx.start()
    try:
        yield nginx
    finally:
        await nginx.stop()
