"""Sends messages to runs over HTTP, and reads the messages of their threads."""

from typing import Any

from tests.support.streams import Client


def message_body(text: str, mode: str = "steer", **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}], "mode": mode, **more}


async def texts(client: Client, thread_id: str) -> list[tuple[str, str]]:
    page = await client.get(f"/v1/threads/{thread_id}/messages", limit=200)
    return [
        (message["role"], "".join(block.get("text", "") for block in message["content"]))
        for message in page["items"]
    ]
