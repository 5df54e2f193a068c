"""Start a run over HTTP, ask on the terminal about each call that waits for approval, and print the answer."""

import os
import sys
from typing import Any

import httpx

URL = os.environ.get("HOLDFAST_URL", "http://127.0.0.1:8000")
AGENT = os.environ.get("HOLDFAST_AGENT", "demo")
KEY = os.environ.get("HOLDFAST_API_KEY")
ANSWERED_BY_PROGRAMS = ("child", "event")


def ask(ticket: dict[str, Any]) -> dict[str, Any]:
    """A person's decision about one ticket."""
    print(f"{ticket['message']}\n{ticket['tool_name']} {ticket['arguments']}")
    decision = {"ticket_id": ticket["id"], "args_digest": ticket["args_digest"]}
    if input("Approve? [y/n] ").strip().lower() == "y":
        return {**decision, "action": "approve"}
    return {**decision, "action": "reject", "reason": input("Why not? ")}


def main(message: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx.Client(base_url=URL, headers=headers, timeout=70) as server:
        start = {"agent_id": AGENT, "messages": [{"role": "user", "content": message}]}
        run = server.post("/v1/runs", json=start).raise_for_status().json()
        address = f"/v1/runs/{run['id']}"
        while run["status"] != "done":
            # Answers as soon as the run waits for a person or is done.
            run = server.get(address, params={"wait": 60}).raise_for_status().json()
            # Also those of delegates, which are decided here too. One request decides tickets of one run.
            tickets = run["waiting"]["tickets"] if run["waiting"] else []
            for ticket in tickets:
                if ticket["kind"] not in ANSWERED_BY_PROGRAMS:
                    sent = {"decisions": [ask(ticket)]}
                    server.post(f"{address}/decisions", json=sent).raise_for_status()
        print(run["final_output"])


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "delete /tmp/old-report.txt")
