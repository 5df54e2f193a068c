/** The inbox as a pure function of a page of tickets and the events that follow. */
import { ticketOf, type Ticket, type Vote } from "../core/api/tickets";
import type { Frame } from "../core/streams/sse";

export interface InboxState {
  /** The rows in the order of their list. A decided row stays until the list is read again. */
  tickets: Ticket[];
  /** Opened since the list was drawn; they wait for a click, so that no row moves. */
  newer: Ticket[];
  /** Tickets that have changed since the card was read, with a counter. */
  changes: Record<string, number>;
  /** The number of events that may have changed how many tickets are open. */
  version: number;
}

export const EMPTY_INBOX: InboxState = { tickets: [], newer: [], changes: {}, version: 0 };

interface TicketEvent {
  event_type: string;
  ticket?: Parameters<typeof ticketOf>[0];
  ticket_id?: string;
  action?: string;
  decided_by?: string;
  reason?: string;
  ts?: string;
}

/** Apply frames of `/v1/tickets/events`. `wanted` says whether a new ticket belongs to the list. */
export function reduceInbox(
  state: InboxState,
  frames: readonly Frame[],
  wanted: (ticket: Ticket) => boolean,
): InboxState {
  return frames.reduce((now, frame) => reduceOne(now, JSON.parse(frame.data) as TicketEvent, wanted), state);
}

function reduceOne(state: InboxState, event: TicketEvent, wanted: (ticket: Ticket) => boolean): InboxState {
  switch (event.event_type) {
    case "ticket_opened":
      return opened(state, event, wanted);
    case "ticket_voted":
      return voted(state, event);
    case "ticket_decided":
      return settled(state, event, (ticket) => ({
        ...ticket,
        status: "decided",
        decision: {
          id: "",
          action: event.action as NonNullable<Ticket["decision"]>["action"],
          payload: null,
          reason: event.reason ?? null,
          by: event.decided_by ?? "",
          at: event.ts ? new Date(event.ts) : ticket.createdAt,
        },
      }));
    case "ticket_expired":
      return settled(state, event, (ticket) => ({ ...ticket, status: "expired" }));
    case "ticket_void":
      return settled(state, event, (ticket) => ({ ...ticket, status: "void" }));
    default:
      return state;
  }
}

function voted(state: InboxState, event: TicketEvent): InboxState {
  const vote: Vote = {
    by: event.decided_by ?? "",
    action: event.action as Vote["action"],
    reason: event.reason ?? null,
    at: new Date(event.ts ?? Date.now()),
  };
  // The list may have been read after the vote.
  const withVote = (ticket: Ticket): Ticket =>
    ticket.id !== event.ticket_id || ticket.votes.some(({ by }) => by === vote.by) ? ticket : { ...ticket, votes: [...ticket.votes, vote] };
  return { ...changed(state, event), tickets: state.tickets.map(withVote), newer: state.newer.map(withVote) };
}

function opened(state: InboxState, event: TicketEvent, wanted: (ticket: Ticket) => boolean): InboxState {
  const wire = event.ticket;
  if (!wire?.id || known(state, wire.id)) return state;
  const at = event.ts ?? new Date().toISOString();
  const full = { ...BARE, ...wire, status: "open" as const, created_at: at };
  const ticket = withExpiry(ticketOf(full as Parameters<typeof ticketOf>[0]), wire, at);
  return wanted(ticket) ? { ...state, newer: [ticket, ...state.newer], version: state.version + 1 } : state;
}

/** Fields that the event leaves out because they are null. */
const BARE = {
  tool_call_id: null,
  tool_effect: null,
  response_schema: null,
  reason: null,
  message: "",
  evidence: null,
  event: null,
  approvers: null,
  expires_at: null,
  on_expiry: null,
  decision: null,
  arguments: null,
};

/** Before a ticket is stored it has `expires_in` instead of `expires_at`. */
function withExpiry(ticket: Ticket, wire: { expires_in?: number } & object, at: string): Ticket {
  const seconds = wire.expires_in;
  if (ticket.expiresAt || seconds === undefined) return ticket;
  return { ...ticket, expiresAt: new Date(new Date(at).getTime() + seconds * 1000) };
}

/** The list together with the tickets that have come since. */
export function withNewer(state: InboxState, byExpiry: boolean): InboxState {
  const tickets = [...state.newer, ...state.tickets];
  if (byExpiry) tickets.sort((one, other) => expiryOf(one) - expiryOf(other));
  return { ...state, tickets, newer: [] };
}

/** The same rows with what a list tells of them and an event doesn't. */
export function withListed(state: InboxState, listed: readonly Ticket[]): InboxState {
  const found = new Map(listed.map((ticket) => [ticket.id, ticket]));
  // What an event has told since the list was read stays.
  const merged = (ticket: Ticket): Ticket => {
    const other = found.get(ticket.id);
    if (!other || ticket.lineage) return ticket;
    const votes = ticket.votes.length > other.votes.length ? ticket.votes : other.votes;
    return { ...ticket, votes, mayDecide: other.mayDecide, lineage: other.lineage };
  };
  return { ...state, tickets: state.tickets.map(merged) };
}

/** What never expires comes last. */
function expiryOf(ticket: Ticket): number {
  return ticket.expiresAt?.getTime() ?? Number.MAX_SAFE_INTEGER;
}

function known(state: InboxState, id: string): boolean {
  return state.tickets.some((one) => one.id === id) || state.newer.some((one) => one.id === id);
}

function settled(state: InboxState, event: TicketEvent, change: (ticket: Ticket) => Ticket): InboxState {
  const id = event.ticket_id;
  return {
    ...changed(state, event),
    version: state.version + 1,
    tickets: state.tickets.map((one) => (one.id === id && one.status === "open" ? change(one) : one)),
    // What was decided before anyone saw it isn't shown as new.
    newer: state.newer.filter((one) => one.id !== id),
  };
}

function changed(state: InboxState, event: TicketEvent): InboxState {
  const id = event.ticket_id!;
  return { ...state, changes: { ...state.changes, [id]: (state.changes[id] ?? 0) + 1 } };
}
