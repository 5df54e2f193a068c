"""Assembles tool calls from pieces: ids may be late or absent, names split, calls interleaved."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from app.domain.ids import CallId
from app.runtime.ports.models import CallArguments, CallOpened

MAX_NAME_CHARACTERS = 1_000
"""The rest of a longer name is dropped: no tool has such a name, and each piece copies the whole name."""


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    opened: bool = False


class ToolCallAssembly:
    """The calls of one answer.

    A call opens when its arguments begin, or when no more pieces of it can follow. Only then are its id and
    name complete: servers split names, repeat them, and send ids late or never. All chunks of a call have the
    same id.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._calls: dict[Hashable, _Call] = {}
        self._unopened: dict[Hashable, _Call] = {}
        """Unopened calls that got pieces since the last `open_all`."""
        self._opened_ids: set[str] = set()
        """The ids of the opened calls."""

    @property
    def any_opened(self) -> bool:
        return bool(self._opened_ids)

    @property
    def opened(self) -> int:
        """How many calls are open."""
        return len(self._opened_ids)

    def id_at(self, at: Hashable) -> CallId | None:
        """The id of the call at this place, once it is open."""
        call = self._calls.get(at)
        return CallId(call.id) if call is not None and call.opened else None

    def has_call_at(self, at: Hashable) -> bool:
        return at in self._calls

    def add(
        self, at: Hashable, *, id: str, name: str, arguments: str
    ) -> Iterator[CallOpened | CallArguments]:
        """Add a piece of the call at `at`. An empty string means that the piece doesn't have the field."""
        call = self._calls.get(at)
        if call is None:
            yield from self.open_all()
            call = self._calls[at] = _Call()
        if not call.opened:
            self._unopened[at] = call
            call.id = call.id or id
            if name != call.name and len(call.name) < MAX_NAME_CHARACTERS:
                call.name += name[:MAX_NAME_CHARACTERS]
        if arguments:
            self._unopened.pop(at, None)
            yield from self._open(call)
            yield CallArguments(CallId(call.id), arguments)

    def open_all(self) -> Iterator[CallOpened]:
        """Open the calls that get no more pieces, because another call began or the answer is complete."""
        unopened, self._unopened = self._unopened, {}
        for call in unopened.values():
            if call.name:
                yield from self._open(call)

    def _open(self, call: _Call) -> Iterator[CallOpened]:
        if call.opened:
            return
        if not call.id or call.id in self._opened_ids:
            call.id = self._new_call_id()
        call.opened = True
        self._opened_ids.add(call.id)
        yield CallOpened(CallId(call.id), call.name)
