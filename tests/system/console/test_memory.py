"""The page of memories: a person finds, exports and erases what agents keep about them."""

import json

import pytest
from playwright.async_api import Browser, expect

from tests.support.servers import Server
from tests.system.console.browser import TEST_SECONDS, using
from tests.system.console.test_accessibility import LOOKS, check

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(TEST_SECONDS)]


@pytest.mark.parametrize("look", LOOKS)
async def test_a_memory_is_found_exported_and_forgotten(
    team: Server, browser: Browser, look: str
) -> None:
    async with team.client("ben") as client:
        for key, value in {"colour": "Ben likes green.", "pet": {"name": "Rex"}}.items():
            kept = await client.http.put(f"/v1/memories/{key}", json={"value": value})
            assert kept.status_code == 200, kept.text
        async with using(browser, team.base, f"memory-{look}", key="ben", **LOOKS[look]) as user:
            await user.open("memory")
            rows = user.page.locator("tbody tr")
            await expect(rows).to_have_count(2)
            await check(user)
            await user.page.get_by_label("Words of a memory").fill("green")
            await user.button("Find").click()
            await expect(rows).to_have_count(1)
            async with user.page.expect_download() as download:
                await user.page.get_by_role("link", name="Export").click()
            path = await (await download.value).path()
            [line] = path.read_text().splitlines()
            assert json.loads(line)["key"] == "colour"
            await user.button("Forget colour").click()
            await check(user)
            await user.button("Forget it for good").click()
            await expect(rows).to_have_count(0)
            await user.sees("No memory has these words")
        left = [item["key"] for item in (await client.get("/v1/memories"))["items"]]
    assert left == ["pet"]
