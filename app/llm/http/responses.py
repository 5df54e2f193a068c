"""What a model server answers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping


class HttpResponse(ABC):
    """A response whose head has arrived."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        """By lower-case names."""

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether all of the response has arrived."""

    @abstractmethod
    async def read(self) -> bytes:
        """The next piece of the body, as it arrived; empty at the end. Raises `httpx2.HTTPError`."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the response. Its connection is used again if all of it was read."""
