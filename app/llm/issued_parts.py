"""Provider data that go back: only to the server that issued them, also if the SDK's adapter stored them."""

from collections.abc import Callable, Sequence
from typing import Any

from app.domain.threads.messages import Message
from app.domain.threads.provider_data import ProviderPart

_SDK_ADAPTER = "pydantic-ai"
"""The adapter that stored the data of a provider before there was one of our own for it."""


def issued_parts(
    message: Message, provider: str, address: str, from_sdk: Callable[[ProviderPart], ProviderPart]
) -> Sequence[ProviderPart]:
    """The parts of an answer that the provider issued at this address. Other answers have none."""
    data = message.provider_data
    if data is None:
        return ()
    if data.issuer.get("provider") != provider or not _is_same(data.issuer.get("address"), address):
        return ()
    if data.issuer.get("adapter") == _SDK_ADAPTER:
        return [from_sdk(part) for part in data.parts]
    return data.parts


def _is_same(issued_by: Any, sent_to: str) -> bool:
    return isinstance(issued_by, str) and issued_by.rstrip("/") == sent_to.rstrip("/")
