"""Attachments over HTTP: what a client sends is what the thread shows."""

import pytest

from tests.support.streams import Client

pytestmark = pytest.mark.anyio


async def test_content_parts_are_stored_in_their_order(client: Client) -> None:
    parts = [
        {"type": "text", "text": "CALL nothing"},
        {
            "type": "image",
            "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
        },
        {"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}, "title": "a"},
        {"type": "text", "text": " please"},
    ]
    body = {"agent_id": "quick", "messages": [{"role": "user", "content": parts}]}
    response = await client.http.post("/v1/runs", json=body)
    assert response.status_code == 202
    run = await client.settled(response.json()["id"])
    assert run["outcome"] == "succeeded"
    messages = await client.get(f"/v1/threads/{run['thread_id']}/messages")
    assert messages["items"][0]["content"] == parts


async def test_a_refusal_names_the_attachment_that_is_not_base64(client: Client) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "not base64!"}
    content = [{"type": "image", "source": source}]
    body = {"agent_id": "quick", "messages": [{"role": "user", "content": content}]}
    response = await client.http.post("/v1/runs", json=body)
    assert response.status_code == 422
    assert "base64" in response.json()["detail"]
    assert "not base64!" not in response.text
