"""What the contract suites run against."""

from collections.abc import Iterator

import pytest

from tests.support.providers import FakeProvider, fake_provider


@pytest.fixture(scope="session")
def provider() -> Iterator[FakeProvider]:
    with fake_provider() as running:
        yield running
