"""Start a run over HTTP, ask on the terminal about each call that waits for approval, and print the answer."""

import os
import sys
from typing import Any

import httpx

URL = os.environ.get("HOLDFAST_URL", "http://127.0.0.1:8000")
KEY = os.environ.get("HOLDFAST_API_KEY")


def ask(ticket: dict[str, Any]) -> dict[str, Any]:
    """A person's decision about one ticket."""
    print(f"{ticket['message']}\n{ticket['tool_name']} {ticket['arguments']}")
    decision = {"ticket_id": ticket["ticket_id"], "args_digest": ticket["args_digest"]}
    if input("Approve? [y/n] ").strip().lower() == "y":
        return {**decision, "action": "approve"}
    return {**decision, "action": "reject", "reason": input("Why not? ")}


def main(message: str) -> None:
    headers = {"Authorization": f"Bearer {KEY}"} if KEY else {}
    with httpx.Client(base_url=URL, headers=headers, timeout=70) as server:
        start = {"agent_id": "demo", "messages": [{"role": "user", "content": message}]}
        run = server.post("/v1/runs", json=start).raise_for_status().json()
        address = f"/v1/runs/{run['run_id']}"
        while run["status"] != "done":
            # Answers as soon as the run waits for a person or is done.
            run = server.get(address, params={"wait": 60}).raise_for_status().json()
            query = {"run_id": run["run_id"], "status": "open"}
            tickets = server.get("/v1/tickets", params=query).raise_for_status().json()["items"]
            if decisions := [ask(ticket) for ticket in tickets]:
                sent = {"decisions": decisions}
                server.post(f"{address}/decisions", json=sent).raise_for_status()
        print(run["final_output"])


if __name__ == "__main__":
    main(" ".join(sys.argv[1:]) or "delete /tmp/old-report.txt")
