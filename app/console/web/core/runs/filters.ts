/** The filters of the list of runs, as they are in the page's address. */
import type { RunQuery } from "../api/runLists";

export interface RunFilters {
  /** A status, an outcome, or `person`: runs that wait for a decision. */
  state: string;
  agent: string;
  code: string;
  /** Days in local time: `2026-11-19`. */
  from: string;
  to: string;
  /** `key=value`, separated by spaces. */
  metadata: string;
}

export const STATES: readonly [name: string, text: string][] = [
  ["", "All states"],
  ["created", "Queued"],
  ["running", "Running"],
  ["waiting", "Waiting"],
  ["tool_permission", "Needs an approval"],
  ["user_input", "Needs an answer"],
  ["done", "Done"],
  ["succeeded", "Succeeded"],
  ["failed", "Failed"],
  ["cancelled", "Cancelled"],
  ["budget_exceeded", "Reached a limit"],
  ["blocked", "Blocked"],
];
const STATUSES = new Set(["created", "running", "waiting", "done"]);
const WAITS = new Set(["tool_permission", "user_input"]);
const DAY = /^\d{4}-\d\d-\d\d$/;

export function runFiltersOf(query: Record<string, string>): RunFilters {
  return {
    state: STATES.some(([name]) => name === query["state"]) ? query["state"]! : "",
    agent: query["agent"] ?? "",
    code: query["code"] ?? "",
    from: DAY.test(query["from"] ?? "") ? query["from"]! : "",
    to: DAY.test(query["to"] ?? "") ? query["to"]! : "",
    metadata: query["metadata"] ?? "",
  };
}

/** The parameters of the address; empty filters are left out. */
export function addressOf(filters: RunFilters): Record<string, string | null> {
  return Object.fromEntries(Object.entries(filters).map(([name, value]) => [name, value || null]));
}

export function runQueryOf({ state, agent, code, from, to, metadata }: RunFilters): RunQuery {
  return {
    status: STATUSES.has(state) ? (state as NonNullable<RunQuery["status"]>) : undefined,
    waitingReason: WAITS.has(state) ? state : undefined,
    outcome: state && !STATUSES.has(state) && !WAITS.has(state) ? state : undefined,
    agent: agent || undefined,
    code: code || undefined,
    createdAfter: from ? new Date(`${from}T00:00`) : undefined,
    createdBefore: to ? dayAfter(to) : undefined,
    metadata: metadataOf(metadata),
  };
}

/** `a=1 b="x y"` as pairs; words without `=` are ignored. */
export function metadataOf(text: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const [, name, quoted, plain] of text.matchAll(/([^\s=]+)=(?:"([^"]*)"|(\S*))/g)) {
    found[name!] = quoted ?? plain ?? "";
  }
  return found;
}

export function isFiltered(filters: RunFilters): boolean {
  return Object.values(filters).some((value) => value !== "");
}

function dayAfter(day: string): Date {
  const at = new Date(`${day}T00:00`);
  at.setDate(at.getDate() + 1);
  return at;
}
