"""Start a run, follow it over restarts of the server, ask a person about its calls, and print the answer."""

import json
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import httpx


def events(server: httpx.Client, method: str, url: str, **more: Any) -> Iterator[dict[str, Any]]:
    """The events of one stream, each with its number and the run's address."""
    more["headers"]["Accept"] = "text/event-stream"
    with server.stream(method, url, **more) as response:
        address = response.raise_for_status().headers.get("Content-Location")
        for line in response.iter_lines():
            if line.startswith("id: "):
                number = line[4:]
            elif line.startswith("data: "):
                yield {**json.loads(line[6:]), "number": number, "address": address}


def main(base: str, message: str) -> None:
    body = {"agent_id": "support", "messages": [{"role": "user", "content": message}]}
    more: dict[str, Any] = {"json": body, "headers": {"Idempotency-Key": str(uuid.uuid4())}}
    run, request, tickets, is_done = "", ("POST", "/v1/runs"), dict[str, Any](), False
    server = httpx.Client(base_url=base, timeout=60)
    while not is_done:
        try:
            for key, ticket in list(tickets.items()):
                question = f"{ticket['message']} {ticket['arguments']} [approve/reject]\n"
                ticket["answer"] = ticket.get("answer") or input(question)
                decisions = [{"ticket_id": key, "action": ticket["answer"]}]
                sent = {"decisions": decisions}
                server.post(f"{run}/decisions", json=sent).raise_for_status()
                del tickets[key]
            for event in events(server, *request, **more):
                run = event["address"] or run
                request, more = (
                    ("GET", f"{run}/events"),
                    {"headers": {"Last-Event-ID": event["number"]}},
                )
                match event:
                    case {"event_type": "ticket_opened", "ticket": ticket}:
                        if ticket["kind"] not in ("child", "event"):
                            tickets[ticket["id"]] = ticket
                    case {"event_type": "ticket_decided" | "ticket_expired" | "ticket_void"}:
                        tickets.pop(event["ticket_id"], None)
                    case {"event_type": "run_finish"}:
                        is_done = "waiting" not in event
        except httpx.TransportError:
            time.sleep(0.1)
    print(server.get(run).json()["final_output"])


if __name__ == "__main__":
    main(*sys.argv[1:])
