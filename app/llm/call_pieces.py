"""Tool calls put together from pieces: late or absent ids, split names, calls that interleave."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from app.domain.ids import CallId
from app.runtime.ports import CallArguments, CallOpened


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    opened: bool = False


class CallPieces:
    """The calls of one answer. Each opens when its arguments begin, or when nothing more can come.

    Only then are its id and name whole: servers split names, repeat them, and send ids late or never.
    Whoever reads the chunks sees one id per call, from its opening to its result.
    """

    def __init__(self, new_call_id: Callable[[], str]) -> None:
        self._new_call_id = new_call_id
        self._calls: dict[Hashable, _Call] = {}

    @property
    def any_opened(self) -> bool:
        return any(call.opened for call in self._calls.values())

    def add(
        self, at: Hashable, *, id: str, name: str, arguments: str
    ) -> Iterator[CallOpened | CallArguments]:
        """One piece of the call at this place; an empty string says nothing."""
        call = self._calls.get(at)
        if call is None:
            yield from self.open_all()
            call = self._calls[at] = _Call()
        if not call.opened:
            call.id = call.id or id
            if name != call.name:
                call.name += name
        if arguments:
            yield from self._open(call)
            yield CallArguments(CallId(call.id), arguments)

    def open_all(self) -> Iterator[CallOpened]:
        """Open what nothing will be added to any more: another call began, or the answer is over."""
        for call in self._calls.values():
            if call.name:
                yield from self._open(call)

    def _open(self, call: _Call) -> Iterator[CallOpened]:
        if call.opened:
            return
        taken = {other.id for other in self._calls.values() if other.opened}
        if not call.id or call.id in taken:
            call.id = self._new_call_id()
        call.opened = True
        yield CallOpened(CallId(call.id), call.name)
