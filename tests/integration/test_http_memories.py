"""Memories over HTTP: people see, change, export and erase what is kept about them, and nothing about others."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.integration.conftest import AGENTS
from tests.support.keys import Holder, write_keys
from tests.support.problems import the_problem
from tests.support.servers import Server, serving
from tests.support.streams import Client

pytestmark = pytest.mark.anyio

COLOUR = "/v1/memories/favourite_colour"
OWN, ALL = ["memories:own"], ["memories:all"]


@pytest.fixture(scope="module")
async def server(
    served_database: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    holders = {
        "ann": Holder("acme", OWN),
        "bob": Holder("acme", OWN),
        "officer": Holder("acme", ALL),
        "reader": Holder("acme", ["runs:read", "runs:write"]),
        "root": Holder("acme", ["admin"]),
        "carl": Holder("globex", ALL),
    }
    keys = write_keys(tmp_path_factory.mktemp("keys") / "keys.toml", holders)
    async with serving(
        served_database,
        agents=AGENTS,
        api_keys_file=keys,
        max_memory_bytes=500,
        max_memories=400,
    ) as running:
        yield running


@pytest.fixture
async def ann(server: Server) -> AsyncIterator[Client]:
    async with server.client("ann") as client:
        yield client
        await erase(client)


@pytest.fixture
async def officer(server: Server) -> AsyncIterator[Client]:
    async with server.client("officer") as client:
        yield client


async def erase(client: Client, **owner: str) -> int:
    response = await client.http.delete("/v1/memories", params={"scope": "own", **owner})
    assert response.status_code == 200, response.text
    count: int = response.json()["deleted"]
    return count


async def put(client: Client, key: str, value: Any, **owner: str) -> dict[str, Any]:
    response = await client.http.put(
        f"/v1/memories/{key}", json={"value": value}, params=owner or None
    )
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def keys_of(client: Client, **query: str) -> list[str]:
    response = await client.http.get("/v1/memories", params=query)
    assert response.status_code == 200, response.text
    return [item["key"] for item in response.json()["items"]]


async def test_a_person_puts_reads_replaces_and_deletes_a_memory(ann: Client) -> None:
    saved = await put(ann, "favourite_colour", "green")
    assert (saved["scope"], saved["subject"], saved["saved_by"]) == ("subject", "ann", "ann")
    assert (saved["agent_id"], saved["run_id"], saved["size"]) == (None, None, 21)
    assert await ann.get(COLOUR) == saved
    replaced = await put(ann, "favourite_colour", {"name": "blue", "since": 2020})
    assert replaced["id"] == saved["id"]
    assert replaced["created_at"] == saved["created_at"]
    assert (await ann.get(COLOUR))["value"] == {"name": "blue", "since": 2020}
    assert (await ann.http.delete(COLOUR)).status_code == 204
    for method in ("GET", "DELETE"):
        the_problem(await ann.http.request(method, COLOUR), 404, "memory_not_found")


async def test_a_list_is_paged_filtered_and_searched(ann: Client) -> None:
    for number in range(5):
        await put(ann, f"note-{number}", f"Note {number}: the dogs walked.")
    await put(ann, "food", "She eats no fish.")
    assert await keys_of(ann) == ["food", *(f"note-{n}" for n in (4, 3, 2, 1, 0))]
    seen: list[str] = []
    query = {"limit": "2", "order": "asc"}
    while True:
        page = (await ann.http.get("/v1/memories", params=query)).json()
        seen += [item["key"] for item in page["items"]]
        if not page["has_more"]:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == [*(f"note-{n}" for n in range(5)), "food"]
    assert await keys_of(ann, q="dog walking") == [f"note-{n}" for n in (4, 3, 2, 1, 0)]
    assert await keys_of(ann, q='"no fish" or "note 3"') == ["food", "note-3"]
    assert await keys_of(ann, key="food") == ["food"]
    assert await keys_of(ann, agent_id="support") == []
    other = await ann.http.get("/v1/memories", params={**query, "q": "dog"})
    the_problem(other, 400, "cursor_mismatch")


# --- whose ----------------------------------------------------------------------------------------


async def test_one_subject_cannot_name_another_ones_memories(server: Server, ann: Client) -> None:
    await put(ann, "favourite_colour", "green")
    of_ann = {"scope": "subject", "subject": "ann"}
    async with server.client("bob") as bob:
        assert await keys_of(bob) == []
        the_problem(await bob.http.get(COLOUR), 404, "memory_not_found")
        for query in (of_ann, {"scope": "tenant"}, {"scope": "user", "subject": "ann"}):
            for method, path in (
                ("GET", "/v1/memories"),
                ("DELETE", "/v1/memories"),
                ("GET", COLOUR),
                ("DELETE", COLOUR),
                ("GET", "/v1/memory-export"),
                ("GET", "/v1/memory-deletions"),
            ):
                response = await bob.http.request(method, path, params=query)
                the_problem(response, 403, "scope_missing")
            written = await bob.http.put(COLOUR, json={"value": "red"}, params=query)
            the_problem(written, 403, "scope_missing")
        for path in ("/v1/memories", "/v1/memory-export", "/v1/memory-deletions"):
            response = await bob.http.get(path, params={"scope": "all"})
            the_problem(response, 403, "scope_missing")
    assert (await ann.http.get(COLOUR, params=of_ann)).json()["value"] == "green"


@pytest.mark.parametrize("holder", ["officer", "root"])
async def test_all_memories_of_the_tenant_need_a_scope(
    server: Server, ann: Client, holder: str
) -> None:
    await put(ann, "favourite_colour", "green")
    of_ann = {"scope": "subject", "subject": "ann"}
    async with server.client(holder) as client, server.client("carl") as carl:
        await put(client, "house_rule", "No shoes.", scope="tenant")
        await put(client, "vip", True, scope="user", subject="c-7")
        assert await keys_of(client, scope="all") == ["vip", "house_rule", "favourite_colour"]
        assert await keys_of(client, scope="user", subject="c-7") == ["vip"]
        assert await keys_of(client) == []
        assert await keys_of(client, **of_ann) == ["favourite_colour"]
        shared = await client.http.get("/v1/memories/house_rule", params={"scope": "tenant"})
        assert shared.json()["subject"] is None
        assert await keys_of(carl, scope="all") == []
        the_problem(await carl.http.get(COLOUR, params=of_ann), 404, "memory_not_found")
        assert await erase(carl, **of_ann) == 0
        assert await erase(client, scope="tenant") == 1
        assert await erase(client, scope="user", subject="c-7") == 1
    assert await keys_of(ann) == ["favourite_colour"]


async def test_a_key_without_a_scope_of_memories_sees_nothing(server: Server) -> None:
    async with server.client("reader") as reader:
        response = await reader.http.get("/v1/memories")
    assert "memories:own" in the_problem(response, 403, "scope_missing")["detail"]


# --- erase and export -----------------------------------------------------------------------------


async def test_all_of_an_owner_is_erased_and_the_audit_keeps_no_text(
    ann: Client, officer: Client
) -> None:
    for number in range(3):
        await put(ann, f"key-of-ann-{number}", "a text of ann")
    assert await erase(officer, scope="subject", subject="ann") == 3
    assert await keys_of(ann) == []
    [newest, *_] = (await ann.get("/v1/memory-deletions"))["items"]
    assert (newest["count"], newest["deleted_by"], newest["subject"]) == (3, "officer", "ann")
    of_all = await officer.get("/v1/memory-deletions", scope="all")
    assert newest in of_all["items"]
    assert "of ann" not in json.dumps(of_all)
    assert "of-ann" not in json.dumps(of_all)


async def test_erasing_all_has_to_name_the_owner(ann: Client) -> None:
    await put(ann, "favourite_colour", "green")
    the_problem(await ann.http.delete("/v1/memories"), 422, "invalid_request")
    response = await ann.http.delete("/v1/memories", params={"scope": "all"})
    the_problem(response, 422, "invalid_request")
    assert await keys_of(ann) == ["favourite_colour"]


async def test_an_export_has_every_memory_of_the_list_in_lines(ann: Client) -> None:
    for number in range(230):
        await put(ann, f"note-{number:03}", f"Line one\nline two {number}")
    async with ann.http.stream("GET", "/v1/memory-export") as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/x-ndjson"
        lines = [json.loads(line) async for line in response.aiter_lines()]
    assert [line["key"] for line in lines] == [f"note-{number:03}" for number in range(230)]
    assert lines[7] == await ann.get("/v1/memories/note-007")
    some = await ann.http.get("/v1/memory-export", params={"q": '"two 17"'})
    assert [json.loads(line)["key"] for line in some.text.splitlines()] == ["note-017"]


async def test_an_export_of_nothing_is_empty(ann: Client) -> None:
    response = await ann.http.get("/v1/memory-export")
    assert (response.status_code, response.text) == (200, "")


# --- bad requests ---------------------------------------------------------------------------------

BAD_VALUES: dict[str, tuple[Any, int, str]] = {
    "too large": ({"value": "x" * 500}, 413, "memory_too_large"),
    "a secret": ({"value": "my password: tr0ub4dor"}, 422, "memory_has_secret"),
    "a secret within": ({"value": {"a": ["ghp_" + "a1" * 20]}}, 422, "memory_has_secret"),
    "a null character": ({"value": "a\0b"}, 422, "invalid_request"),
    "too deep": ({"value": json.loads("[" * 30 + "]" * 30)}, 422, "invalid_request"),
    "no value": ({}, 422, "invalid_request"),
    "another field": ({"value": 1, "key": "x"}, 422, "invalid_request"),
}


@pytest.mark.parametrize("case", BAD_VALUES)
async def test_a_bad_value_is_refused_and_not_kept(ann: Client, case: str) -> None:
    body, status, code = BAD_VALUES[case]
    the_problem(await ann.http.put(COLOUR, json=body), status, code)
    assert await keys_of(ann) == []


@pytest.mark.parametrize("key", ["a%20b", "%C3%A4", "a" * 101, "a%00", "a%2B"])
async def test_a_bad_key_is_refused(ann: Client, key: str) -> None:
    for method in ("GET", "PUT", "DELETE"):
        body: dict[str, Any] = {"json": {"value": 1}} if method == "PUT" else {}
        response = await ann.http.request(method, f"/v1/memories/{key}", **body)
        the_problem(response, 422, "invalid_request")


@pytest.mark.parametrize(
    "query",
    [
        {"scope": "subject"},
        {"scope": "own", "subject": "ann"},
        {"scope": "tenant", "subject": "ann"},
        {"scope": "all", "subject": "ann"},
        {"scope": "mine"},
        {"scope": "subject", "subject": ""},
        {"scope": "subject", "subject": "x" * 201},
        {"q": ""},
        {"q": "a\0b"},
        {"limit": "0"},
        {"subjet": "ann"},
    ],
    ids=str,
)
async def test_a_wrong_query_is_refused(officer: Client, query: dict[str, str]) -> None:
    the_problem(await officer.http.get("/v1/memories", params=query), 422, "invalid_request")


@pytest.mark.parametrize("query", ["'", "a & | ! b", "((", ":*", '"', "\\", "the", "a" * 400])
async def test_a_search_takes_any_text(ann: Client, query: str) -> None:
    await put(ann, "favourite_colour", "green")
    assert await keys_of(ann, q=query) == []
