"""Tool calls put together from pieces: late or absent ids, split names, calls that interleave."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from app.domain.ids import CallId
from app.runtime.ports import CallArguments, CallOpened

MAX_NAME_CHARACTERS = 1_000
"""What comes beyond isn't added: no tool has such a name, and adding it piece by piece copies all of it."""


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    opened: bool = False


class ToolCallAssembly:
    """The calls of one answer. Each opens when its arguments begin, or when nothing more can come.

    Only then are its id and name whole: servers split names, repeat them, and send ids late or never.
    Whoever reads the chunks sees one id per call, from its opening to its result.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._calls: dict[Hashable, _Call] = {}
        self._unopened: dict[Hashable, _Call] = {}
        """Those that something was added to since all were opened."""
        self._taken: set[str] = set()
        """The ids of those that were opened."""

    @property
    def any_opened(self) -> bool:
        return bool(self._taken)

    def add(
        self, at: Hashable, *, id: str, name: str, arguments: str
    ) -> Iterator[CallOpened | CallArguments]:
        """One piece of the call at this place; an empty string says nothing."""
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
        """Open what nothing will be added to any more: another call began, or the answer is over."""
        unopened, self._unopened = self._unopened, {}
        for call in unopened.values():
            if call.name:
                yield from self._open(call)

    def _open(self, call: _Call) -> Iterator[CallOpened]:
        if call.opened:
            return
        if not call.id or call.id in self._taken:
            call.id = self._new_call_id()
        call.opened = True
        self._taken.add(call.id)
        yield CallOpened(CallId(call.id), call.name)
