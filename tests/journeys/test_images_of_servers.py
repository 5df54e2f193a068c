"""Images and other files that an MCP server returns: the model reads them, and clients download them."""

import base64
import json
from pathlib import Path

import pytest

from tests.support.mcp.agents_files import with_shop
from tests.support.recorded_answers import chat
from tests.support.recorded_provider import recorded_provider
from tests.support.servers import serving

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
IN_BASE64 = base64.b64encode(PNG).decode()
ARGUMENTS = json.dumps({"data": [IN_BASE64, "no base64!"]})
FUNCTION = {"name": "shop__photos", "arguments": ARGUMENTS}
CALL = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": FUNCTION}]}


async def test_files_of_a_server_reach_the_model_and_clients(
    shared_database_url: str, tmp_path: Path
) -> None:
    agents = with_shop(tmp_path, tmp_path / "payments", {"shop": {}})
    async with recorded_provider() as provider:
        address = provider.plays(
            "fake",
            chat(CALL, finish="tool_calls"),
            chat({"content": "I see it."}, finish="stop"),
        )
        model = f'provider = "openai"\nmodel = "m"\nbase_url = "{address}/v1"\napi_key = "k"'
        text = agents.read_text().replace(
            "provider = 'scripted'\nscript = 'plain'\ndelay_ms = 1", model
        )
        agents.write_text(text)
        async with serving(shared_database_url, agents=agents) as server, server.client() as client:
            run = await client.start("shop", "Show the photos.")
            assert (await client.ended(run["id"]))["outcome"] == "succeeded"
            [_, request] = provider.requests("fake")
            made = (await client.get(f"/v1/runs/{run['id']}/artifacts"))["items"]
            messages = await client.get(f"/v1/threads/{run['thread_id']}/messages")
            image = await client.http.get(made[0]["content_url"])
    names = [(one["name"], one["media_type"], one["size"]) for one in made]
    assert names == [("image.jpeg", "image/png", len(PNG)), ("all.zip", "application/zip", 4)]
    assert image.content == PNG
    [result] = [each for each in messages["items"] if each["role"] == "tool"]
    assert result["content"][1]["source"] == {"type": "file", "file_id": made[0]["id"]}
    parts = result["result"]["metadata"]["content"]
    assert [part.get("file_id") for part in parts] == [made[0]["id"], None, made[1]["id"]]
    *_, of_call, behind = request["messages"]
    assert "its data aren't base64" in of_call["content"]
    assert made[1]["id"] in of_call["content"]
    assert behind["content"][1]["image_url"]["url"] == f"data:image/png;base64,{IN_BASE64}"
