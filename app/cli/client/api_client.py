"""The HTTP client of the commands: errors with their sentences, streams that reconnect."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import httpx2

from app.cli.exit_codes import ExitCode, exit_with
from app.domain.errors import HoldfastError

Body: TypeAlias = dict[str, Any]
Event: TypeAlias = dict[str, Any]

_TIMEOUT = httpx2.Timeout(30.0, connect=10.0)
_STREAM_TIMEOUT = httpx2.Timeout(60.0, connect=10.0)
"""For streams. The server sends a comment much more often."""
_RECONNECT_TIMEOUT_SECONDS = 60.0
_MAX_RETRY_INTERVAL_SECONDS = 2.0
_TRANSIENT_STATUSES = frozenset({429, 502, 503, 504})
_NO_PROXY = {f"all://{host}": None for host in ("127.0.0.1", "localhost", "[::1]")}


class ServerUnreachable(HoldfastError):
    """The server can't be reached."""


class ServerRefused(HoldfastError):
    """The server answered with an error; the message is its `detail`."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code


class ApiClient:
    def __init__(self, url: str, http: httpx2.Client) -> None:
        self._url = url
        self._http = http

    def get(self, path: str, **query: str | None) -> Body:
        """Ask for one object. Parameters that are None aren't sent."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("GET", path, params=given)

    def pages(self, path: str, filters: Mapping[str, str | bool | None]) -> Iterator[Body]:
        """The items of a list, page by page as they are needed. Filters that are None aren't sent."""
        query = {name: value for name, value in filters.items() if value is not None}
        while True:
            page = self._ask("GET", path, params=query)
            yield from page["items"]
            if not page["has_more"]:
                return
            query["cursor"] = page["next_cursor"]

    def lines(self, path: str, query: Mapping[str, str | None]) -> Iterator[str]:
        """The lines of an export, as they arrive. Parameters that are None aren't sent."""
        given = {name: value for name, value in query.items() if value is not None}
        try:
            with self._http.stream("GET", path, params=given, timeout=_STREAM_TIMEOUT) as response:
                if response.is_error:
                    response.read()
                    _body_of(response)
                yield from response.iter_lines()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def delete(self, path: str, **query: str | None) -> Body:
        """Delete what the path names. Parameters that are None aren't sent."""
        given = {name: value for name, value in query.items() if value is not None}
        return self._ask("DELETE", path, params=given)

    def health(self) -> Body:
        """The server's health. A server that isn't ready sends it with status 503."""
        try:
            response = self._http.get("/health")
            if response.status_code in (200, 503) and "status" in (body := response.json()):
                found: Body = body
                return found
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        except ValueError:  # no JSON
            pass
        return _body_of(response)

    def start(self, body: Body) -> Body:
        return self._ask("POST", "/v1/runs", body)

    def run(self, run_id: str) -> Body:
        return self.get(f"/v1/runs/{run_id}")

    def decide(self, run_id: str, decision: Body) -> Body:
        return self._ask("POST", f"/v1/runs/{run_id}/decisions", {"decisions": [decision]})

    def ticket(self, ticket_id: str) -> Body:
        return self.get(f"/v1/tickets/{ticket_id}")

    def signal(self, signal: Body) -> Body:
        return self._ask("POST", "/v1/signals", signal)

    def cancel(self, run_id: str, reason: str | None, *, wait: int = 0) -> Body:
        body = {} if reason is None else {"reason": reason}
        return self._ask("POST", f"/v1/runs/{run_id}/cancel", body, params={"wait": wait})

    def pause(self, run_id: str, reason: str | None, *, wait: int = 0) -> Body:
        body = {} if reason is None else {"reason": reason}
        return self._ask("POST", f"/v1/runs/{run_id}/pause", body, params={"wait": wait})

    def resume(self, run_id: str) -> Body:
        return self._ask("POST", f"/v1/runs/{run_id}/resume")

    def retry(self, run_id: str, body: Body) -> Body:
        return self._ask("POST", f"/v1/runs/{run_id}/retry", body)

    def events(
        self,
        run_id: str,
        after: int,
        *,
        until_done: bool = False,
        on_cut: Callable[[str], None],
    ) -> Iterator[Event]:
        """A run's events, each once, until the server ends the stream.

        If the connection breaks, reconnects after the last event and calls `on_cut`.
        """
        reconnecting = _Reconnecting()
        while True:
            try:
                for event in self._events_once(run_id, after, until_done):
                    reconnecting.reset()
                    after = event["seq"]
                    yield event
                return
            except httpx2.TransportError as error:
                if not reconnecting.sleep(on_cut):
                    raise self._unreachable(error) from error
            except ServerRefused as refusal:
                if refusal.status in _TRANSIENT_STATUSES:
                    if not reconnecting.sleep(on_cut):
                        raise
                elif refusal.code == "cursor_expired":
                    after = self.get(f"/v1/runs/{run_id}/snapshot")["last_event_id"]
                    on_cut(f"some events are no longer kept; continuing after event {after}")
                else:
                    raise

    def _events_once(self, run_id: str, after: int, until_done: bool) -> Iterator[Event]:
        with self._http.sse(
            f"/v1/runs/{run_id}/events",
            params={"follow": int(until_done)},
            headers={"Last-Event-ID": str(after)},
            timeout=_STREAM_TIMEOUT,
        ) as source:
            if source.response.status_code == 204:
                return
            if source.response.status_code != 200:
                source.response.read()
                _body_of(source.response)
            ids: Event = {}
            for sent in source:
                if sent.data and sent.id:
                    event: Event = json.loads(sent.data)
                    # Only the first event of a connection has these.
                    ids |= {name: event[name] for name in ("thread_id", "run_id") if name in event}
                    yield {"seq": int(sent.id), **ids, **event}

    def _ask(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        params: Mapping[str, str | bool | int] | None = None,
    ) -> Body:
        try:
            return _body_of(self._http.request(method, path, json=body, params=params))
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        return ServerUnreachable(
            f"No server answers at {self._url} ({str(error) or type(error).__name__}). Start one "
            "with `holdfast serve`, or set HOLDFAST_URL."
        )


@contextmanager
def connect_client(url: str, key: str | None) -> Iterator[ApiClient]:
    """Opens a client for the server at this address."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with httpx2.Client(
            base_url=url, headers=headers, timeout=_TIMEOUT, mounts=_NO_PROXY
        ) as http:
            yield ApiClient(url, http)
    except (httpx2.InvalidURL, UnicodeEncodeError) as error:
        raise ServerUnreachable(
            f"HOLDFAST_URL or HOLDFAST_API_KEY isn't valid: {error}."
        ) from error


@contextmanager
def command_client(url: str, key: str | None) -> Iterator[ApiClient]:
    """The same for a command: an error of the server ends the process with its sentence."""
    try:
        with connect_client(url, key) as server:
            yield server
    except (ServerUnreachable, ServerRefused) as error:
        exit_with(str(error), ExitCode.REFUSED)


class _Reconnecting:
    """Waits between reconnects, and gives up after a time-out."""

    def __init__(self) -> None:
        self._attempts = 0
        self._until = 0.0

    def reset(self) -> None:
        self._attempts = 0

    def sleep(self, on_cut: Callable[[str], None]) -> bool:
        """Sleep before the next attempt. Calls `on_cut` the first time. False after the time-out."""
        if self._attempts == 0:
            on_cut("the connection broke; reconnecting")
            self._until = time.monotonic() + _RECONNECT_TIMEOUT_SECONDS
        self._attempts += 1
        time.sleep(min(0.1 * 2**self._attempts, _MAX_RETRY_INTERVAL_SECONDS))
        return time.monotonic() < self._until


def _body_of(response: httpx2.Response) -> Body:
    if response.status_code == 204:
        return {}
    try:
        body: Body = response.json()
    except ValueError:
        raise ServerRefused(
            response.status_code,
            str(response.status_code),
            f"{response.url} isn't a Holdfast server",
        ) from None
    if response.is_error:
        code = str(body.get("code", response.status_code))
        detail = str(body.get("detail", response.text[:200]))
        raise ServerRefused(response.status_code, code, detail)
    return body
