/** The number of open tickets: the badge of the inbox, and of the browser's tab. */
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Me } from "../api/session";
import { countTickets, type TicketCount, type TicketQuery } from "../api/ticketLists";
import { usePoll } from "../visible";

/** Changes that come together need one reading. */
const PAUSE = 2_000;
/** Between two readings on pages that follow no tickets. */
const BADGE_PAUSE = 30_000;

/** Reads the number after `version` has grown. Null until it is known. */
export function useOpenCount(query: TicketQuery, version: number): TicketCount | null {
  const [count, setCount] = useState<TicketCount | null>(null);
  const reader = useMemo(() => readerOf({ ...query, status: "open" }, setCount), [JSON.stringify(query)]);
  useEffect(() => reader.stop, [reader]);
  useEffect(() => {
    if (version) reader.ask();
  }, [reader, version]);
  return count;
}

/** The badge on each page: the number that the page knows, or one that is read now and then. */
export function useWaiting(me: Me | null, known: string | undefined): string {
  const [count, setCount] = useState<TicketCount | null>(null);
  const isWanted = known === undefined && (me?.may("runs:read") ?? false);
  usePoll(BADGE_PAUSE, String(isWanted), async (signal) => {
    // Without the number the badge is missing, and the page is complete.
    if (isWanted) await countTickets({ status: "open" }, signal).then(setCount, () => undefined);
  });
  return known ?? countText(count);
}

export function countText(found: TicketCount | null): string {
  if (!found?.count) return "";
  return `${found.count.toLocaleString("en")}${found.isExact ? "" : "+"}`;
}

function readerOf(query: TicketQuery, onRead: (count: TicketCount) => void) {
  const stopped = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  let last = 0;
  const read = () => {
    timer = undefined;
    last = Date.now();
    // If it can't be read, the last number stays until the next change.
    countTickets(query, stopped.signal).then(onRead, () => undefined);
  };
  return {
    ask: () => {
      timer ??= setTimeout(read, Math.max(0, last + PAUSE - Date.now()));
    },
    stop: () => {
      stopped.abort();
      clearTimeout(timer);
    },
  };
}
