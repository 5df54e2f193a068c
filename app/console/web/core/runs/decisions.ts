/** Who decided about the calls of a run, for marks in its conversation. */
import { useEffect, useState } from "preact/hooks";
import { readAudit } from "../api/audit";
import type { Decision } from "../api/tickets";

export type Decisions = Readonly<Record<string, Decision>>;

/** More pages of the audit aren't read: the tab has them all. */
const MOST_PAGES = 5;
export const NO_DECISIONS: Decisions = {};

/** The last decision about each call, by the call's id. `version` grows when a ticket was decided. */
export function useDecisions(runId: string, isWanted: boolean, version: number): Decisions {
  const [found, setFound] = useState(NO_DECISIONS);
  useEffect(() => {
    if (!isWanted) return;
    const stopped = new AbortController();
    // The conversation is complete without the marks; the tab of the audit shows its errors.
    readAll(runId, stopped.signal).then(setFound, () => undefined);
    return () => stopped.abort();
  }, [runId, isWanted, version]);
  return found;
}

async function readAll(runId: string, signal: AbortSignal): Promise<Decisions> {
  const found: Record<string, Decision> = {};
  let cursor: string | null = null;
  for (let pages = 0; pages < MOST_PAGES; pages++) {
    const page = await readAudit(runId, cursor === null ? {} : { cursor }, signal);
    for (const { ticket } of page.cases) if (ticket.callId && ticket.decision) found[ticket.callId] = ticket.decision;
    cursor = page.next;
    if (cursor === null) break;
  }
  return found;
}
