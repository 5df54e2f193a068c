"""The event loops of a server. A test module that imports `anyio_backend` runs its tests on both."""

import pytest


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"], scope="module")
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}
