/** Lists of tickets, and their number. */
import { request, type QueryOf, type Schemas } from "./client";
import { listedTicketOf, type Ticket, type TicketStatus } from "./tickets";

export interface TicketPage {
  items: Ticket[];
  next: string | null;
}

export interface TicketQuery {
  status?: TicketStatus | undefined;
  agent?: string | undefined;
  tool?: string | undefined;
  run?: string | undefined;
  thread?: string | undefined;
  kind?: string | undefined;
  expiresBefore?: Date | undefined;
  mine?: boolean | undefined;
  /** What expires first comes first, instead of the newest. */
  byExpiry?: boolean | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
}

export interface TicketCount {
  count: number;
  /** Otherwise there are more. */
  isExact: boolean;
}

export async function listTickets(query: TicketQuery, signal?: AbortSignal): Promise<TicketPage> {
  const wanted: QueryOf<"/v1/tickets"> = {
    ...filtersOf(query),
    ...(query.byExpiry ? { sort: "expires_at" as const, order: "asc" as const } : {}),
    cursor: query.cursor ?? null,
    ...(query.limit ? { limit: query.limit } : {}),
  };
  const page = await request<Schemas["ListedTicketPage"]>("GET", "/v1/tickets", {
    query: wanted,
    ...(signal ? { signal } : {}),
  });
  return { items: page.items.map(listedTicketOf), next: page.has_more ? (page.next_cursor ?? null) : null };
}

export async function countTickets(query: TicketQuery, signal: AbortSignal): Promise<TicketCount> {
  const found = await request<Schemas["TicketCount"]>("GET", "/v1/tickets/count", { query: { ...filtersOf(query) }, signal });
  return { count: found.count, isExact: found.is_exact };
}

function filtersOf(query: TicketQuery): QueryOf<"/v1/tickets/count"> {
  return {
    status: query.status ?? null,
    agent_id: query.agent ?? null,
    tool_name: query.tool ?? null,
    run_id: query.run ?? null,
    thread_id: query.thread ?? null,
    kind: (query.kind as QueryOf<"/v1/tickets">["kind"]) ?? null,
    expires_before: query.expiresBefore?.toISOString() ?? null,
    assignee: query.mine ? "me" : null,
  };
}

/** Where the stream of ticket events stands now. A list that is read after this misses no event that follows. */
export async function readTicketCursor(signal: AbortSignal): Promise<string> {
  const query: QueryOf<"/v1/tickets/events"> = { from: "now", limit: 1 };
  const page = await request<{ next_cursor: string }>("GET", "/v1/tickets/events", { query, signal });
  return page.next_cursor;
}
