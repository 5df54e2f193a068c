import assert from "node:assert/strict";
import { test } from "node:test";
import { withoutRequests } from "../core/words/sentences";

const ID = "01a1f5d7-97d3-77f7-a656-fed1241bb96d";

const CASES: [text: string, shown: string][] = [
  [`1 ticket is open. Answer with POST /v1/runs/${ID}/decisions.`, "1 ticket is open."],
  [`It waits for 1 run of other agents, 1 of whose tickets is open: GET /v1/runs/${ID}/children.`, "It waits for 1 run of other agents, 1 of whose tickets is open."],
  [`2 of its background tasks are not finished: GET /v1/runs/${ID}/tasks.`, "2 of its background tasks are not finished."],
  [`ann has paused it: lunch. No worker executes it, until it is resumed: POST /v1/runs/${ID}/resume.`, "ann has paused it: lunch. No worker executes it, until it is resumed."],
  [`The thread's open run is paused. Resume it with POST /v1/runs/${ID}/resume, or cancel it.`, "The thread's open run is paused. Resume it, or cancel it."],
  [
    `The run has ended: failed. As long as it is the thread's latest run, it can be retried from its last checkpoint: POST /v1/runs/${ID}/retry.`,
    "The run has ended: failed. As long as it is the thread's latest run, it can be retried from its last checkpoint.",
  ],
  [
    "The MCP server 'shop' is away, so calls of its tools fail: no such program. GET /v1/mcp-servers/shop has its state. A later call starts it again.",
    "The MCP server 'shop' is away, so calls of its tools fail: no such program. A later call starts it again.",
  ],
  ["It is ready, and is executed as soon as a worker has a free slot.", "It is ready, and is executed as soon as a worker has a free slot."],
];

test("sentences of the API are shown without their requests", () => {
  for (const [text, shown] of CASES) assert.equal(withoutRequests(text), shown);
});

test("what only a program can send isn't asked of the reader", () => {
  const text = "The call of 'wait' waits for the event 'paid' with the key 'R-7'. Send it with POST /v1/signals.";
  assert.equal(withoutRequests(text), "The call of 'wait' waits for the event 'paid' with the key 'R-7'. A program sends it.");
});
