/** Loads the inbox, follows its events, and keeps both in a store. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { listTickets, readTicketCursor, type TicketQuery } from "../api/ticketLists";
import type { Ticket } from "../api/tickets";
import type { Me } from "../api/session";
import { EMPTY_INBOX, reduceInbox, withListed, withNewer, type InboxState } from "../../events/reduceInbox";
import { useDrawn } from "../drawing/freeze";
import { createStore } from "../store";
import { streamName } from "../changes";
import { notifyOf } from "./notify";
import { nameOf } from "../../parts/tickets/TicketRow";
import { followTogether } from "../streams/shared";
import type { StreamState } from "../streams/stream";

export interface Inbox {
  /** The state as it is drawn. */
  state: InboxState;
  /** Tickets that have come or changed since the page was frozen. */
  held: number;
  /** Grows with each event that may have changed how many tickets are open. */
  version: number;
  live: StreamState;
  error: unknown;
  isLoaded: boolean;
  hasMore: boolean;
  /** Show the tickets that have come since. */
  showNewer(): void;
  loadMore(): void;
  reload(): void;
  /** Put a ticket that was just read in place of its row. */
  replace(ticket: Ticket): void;
}

const PAGE_SIZE = 50;

export function useInbox(query: TicketQuery, me: Me | null): Inbox {
  const store = useMemo(() => createStore(EMPTY_INBOX), []);
  const { drawn, live: newest, redraw } = useDrawn(store);
  const [live, setLive] = useState<StreamState>("connecting");
  const [error, setError] = useState<unknown>(null);
  const [next, setNext] = useState<string | null>(null);
  const [isLoaded, setLoaded] = useState(false);
  const [reading, setReading] = useState(0);
  const key = JSON.stringify(query);

  useEffect(() => {
    if (!me) return;
    const stopped = new AbortController();
    let unfollow = () => undefined as void;
    setError(null);
    const load = async () => {
      const cursor = await readTicketCursor(stopped.signal);
      const page = await listTickets({ ...query, limit: PAGE_SIZE }, stopped.signal);
      store.set((before) => ({ ...EMPTY_INBOX, tickets: page.items, version: before.version + 1 }));
      redraw();
      setNext(page.next);
      setLoaded(true);
      const isWanted = (ticket: Ticket) => fits(ticket, query);
      unfollow = followTogether(streamName("inbox", me), {
        path: "/v1/tickets/events",
        after: cursor,
        heartbeatSeconds: me.heartbeatSeconds,
        onFrames: (frames) => {
          const known = new Set(store.get().newer);
          store.set((before) => reduceInbox(before, frames, isWanted));
          for (const ticket of store.get().newer) if (!known.has(ticket)) notifyOf(ticket, nameOf(ticket));
        },
        onState: setLive,
        onExpired: () => setReading((count) => count + 1),
      });
      if (stopped.signal.aborted) unfollow();
    };
    load().catch((problem: unknown) => !stopped.signal.aborted && setError(problem));
    return () => {
      stopped.abort();
      unfollow();
    };
  }, [key, reading, me]);

  const change = (by: (before: InboxState) => InboxState) => {
    store.set(by);
    redraw();
  };
  return {
    state: drawn,
    held: newest.version - drawn.version,
    version: newest.version,
    live,
    error,
    isLoaded,
    hasMore: next !== null,
    showNewer: () => {
      change((before) => withNewer(before, query.byExpiry ?? false));
      // The rows are complete without it: votes and the runs above are hints there, and the card reads both.
      listTickets({ ...query, limit: PAGE_SIZE }).then(({ items }) => change((before) => withListed(before, items)), () => undefined);
    },
    loadMore: () => {
      if (next === null) return;
      listTickets({ ...query, limit: PAGE_SIZE, cursor: next }).then((page) => {
        change((before) => ({ ...before, tickets: [...before.tickets, ...missing(page.items, before.tickets)] }));
        setNext(page.next);
      }, setError);
    },
    reload: () => setReading((count) => count + 1),
    replace: (ticket) =>
      change((before) => ({
        ...before,
        tickets: before.tickets.map((one) => (one.id === ticket.id ? ticket : one)),
      })),
  };
}

function missing(tickets: Ticket[], known: Ticket[]): Ticket[] {
  const ids = new Set(known.map(({ id }) => id));
  return tickets.filter(({ id }) => !ids.has(id));
}

/** Whether a ticket that was just opened belongs to the list. */
function fits(ticket: Ticket, query: TicketQuery): boolean {
  if (query.status !== undefined && query.status !== "open") return false;
  if (query.agent && ticket.agentId !== query.agent) return false;
  if (query.tool && ticket.tool !== query.tool) return false;
  if (query.kind && ticket.kind !== query.kind) return false;
  if (query.run && ticket.runId !== query.run) return false;
  if (query.thread && ticket.threadId !== query.thread) return false;
  if (query.expiresBefore && !(ticket.expiresAt && ticket.expiresAt < query.expiresBefore)) return false;
  return ticket.kind !== "child";
}
