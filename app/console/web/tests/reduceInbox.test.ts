import assert from "node:assert/strict";
import { test } from "node:test";
import { EMPTY_INBOX, reduceInbox, withListed, withNewer, type InboxState } from "../events/reduceInbox";

const all = () => true;
let seq = 0;
const frames = (...events: object[]) => events.map((event) => ({ id: String(++seq), data: JSON.stringify(event) }));
const opened = (id: string, more: object = {}) => ({
  event_type: "ticket_opened",
  ts: "2026-01-02T03:04:05.000Z",
  ticket: { id, run_id: "r", thread_id: "t", agent_id: "demo", kind: "approval", tool_name: "refund", arguments: {}, args_digest: "d", allowed_actions: ["approve"], ...more },
});

function shown(...events: object[]): InboxState {
  const state = reduceInbox(EMPTY_INBOX, frames(...events), all);
  return { ...state, tickets: state.newer, newer: [] };
}

test("a new ticket waits beside the list, newest first, and comes once", () => {
  const state = reduceInbox(EMPTY_INBOX, frames(opened("a"), opened("b"), opened("a")), all);
  assert.deepEqual(state.tickets, []);
  assert.deepEqual(state.newer.map(({ id }) => id), ["b", "a"]);
});

test("new tickets come before the others, or by their expiry", () => {
  const state = { ...shown(opened("never"), opened("late", { expires_in: 900 })), newer: shown(opened("soon", { expires_in: 60 })).tickets };
  assert.deepEqual(withNewer(state, false).tickets.map(({ id }) => id), ["soon", "late", "never"]);
  const later = { ...state, tickets: [...state.tickets].reverse() };
  assert.deepEqual(withNewer(later, false).tickets.map(({ id }) => id), ["soon", "never", "late"]);
  assert.deepEqual(withNewer(later, true).tickets.map(({ id }) => id), ["soon", "late", "never"]);
  assert.deepEqual(withNewer(later, true).newer, []);
});

test("only events about how many tickets are open make the number outdated", () => {
  const state = shown(opened("a"));
  const after = (event: object) => reduceInbox(state, frames(event), all).version - state.version;
  assert.equal(after(opened("b")), 1);
  assert.equal(after({ event_type: "ticket_void", ticket_id: "a" }), 1);
  assert.equal(after({ event_type: "ticket_voted", ticket_id: "a", votes_missing: 1 }), 0);
});

test("a ticket that doesn't fit the filters isn't counted", () => {
  assert.equal(reduceInbox(EMPTY_INBOX, frames(opened("a")), () => false), EMPTY_INBOX);
});

test("a decided row stays where it is, with who decided", () => {
  const state = reduceInbox(shown(opened("a"), opened("b")), frames({ event_type: "ticket_decided", ticket_id: "b", action: "reject", decided_by: "ann", reason: "no" }), all);
  assert.deepEqual(state.tickets.map(({ id, status }) => [id, status]), [["b", "decided"], ["a", "open"]]);
  assert.equal(state.tickets[0]!.decision!.by, "ann");
  assert.equal(state.changes["b"], 1);
});

test("what is decided before it was shown isn't new any more", () => {
  const state = reduceInbox(EMPTY_INBOX, frames(opened("a"), { event_type: "ticket_decided", ticket_id: "a" }), all);
  assert.deepEqual(state.newer, []);
});

test("each person's vote counts once, and later ends don't overwrite the first", () => {
  const state = reduceInbox(
    shown(opened("a", { approvers: { quorum: 3 } })),
    frames(
      { event_type: "ticket_voted", ticket_id: "a", decided_by: "ann", action: "approve" },
      { event_type: "ticket_voted", ticket_id: "a", decided_by: "ann", action: "approve" },
      { event_type: "ticket_voted", ticket_id: "a", decided_by: "ben", action: "approve" },
      { event_type: "ticket_expired", ticket_id: "a" },
      { event_type: "ticket_void", ticket_id: "a" },
    ),
    all,
  );
  assert.deepEqual(state.tickets[0]!.votes.map(({ by }) => by), ["ann", "ben"]);
  assert.equal(state.tickets[0]!.status, "expired");
  assert.deepEqual(state.tickets[0]!.approvers, { scope: null, notStarter: false, quorum: 3 });
});

test("a row keeps its place and its events' votes when the list tells its lineage", () => {
  const before = reduceInbox(shown(opened("a"), opened("b")), frames({ event_type: "ticket_voted", ticket_id: "a", decided_by: "ann", action: "approve" }), all);
  const lineage = { startedBy: "carol", parentId: "p", rootId: "p", rootAgent: "chief" };
  const listed = before.tickets.map((ticket) => ({ ...ticket, votes: [], lineage, mayDecide: { allowed: false, reason: "four eyes" } })).reverse();
  const state = withListed(before, listed);
  assert.deepEqual(state.tickets.map(({ id }) => id), before.tickets.map(({ id }) => id));
  assert.deepEqual(state.tickets.find(({ id }) => id === "a")!.votes.map(({ by }) => by), ["ann"]);
  assert.equal(state.tickets[0]!.lineage!.rootAgent, "chief");
  assert.equal(state.tickets[0]!.mayDecide!.allowed, false);
});

test("an expiry that counts from the event becomes a time", () => {
  const [ticket] = shown(opened("a", { expires_in: 60 })).tickets;
  assert.equal(ticket!.expiresAt!.toISOString(), "2026-01-02T03:05:05.000Z");
});

test("unknown events change nothing", () => {
  const state = shown(opened("a"));
  assert.equal(reduceInbox(state, frames({ event_type: "ticket_from_the_future" }), all), state);
});
