/** The events of a run as a list, without deltas. */
import { request, type QueryOf, type Schemas } from "./client";
import type { Frame } from "../streams/sse";
import type { Json } from "./messages";

export interface ListedEvent {
  seq: number;
  type: string;
  at: Date;
  step: number | null;
  /** The event as the API sends it. `cut` names the texts that are cut. */
  wire: Readonly<Record<string, Json>>;
}

export interface EventsRead {
  events: ListedEvent[];
  cursor: string;
  hasMore: boolean;
}

const PAGE_SIZE = 500;
/** Longer texts are cut in the list. `readWholeEvent` has them. */
const MOST_FIELD_BYTES = 2_000;

export interface EventsQuery {
  cursor: string | null;
  /** Whether long texts are whole. */
  isWhole: boolean;
  type?: string;
}

export async function readEvents(runId: string, { cursor, isWhole, type }: EventsQuery, signal?: AbortSignal): Promise<EventsRead> {
  const query: QueryOf<"/v1/runs/{run_id}/events"> = {
    cursor,
    limit: PAGE_SIZE,
    ...(isWhole ? {} : { max_field_bytes: MOST_FIELD_BYTES }),
    ...(type ? { types: type } : {}),
  };
  const page = await request<Schemas["EventsPage"]>("GET", `/v1/runs/${encodeURIComponent(runId)}/events`, {
    query: { ...query, deltas: 0, include: "state,trace" },
    ...(signal ? { signal } : {}),
  });
  return {
    events: (page.items as unknown as Record<string, Json>[]).map(eventOf),
    cursor: page.next_cursor,
    hasMore: page.has_more,
  };
}

/** All events of a run, or those of one type, with their whole texts. */
export async function readAllEvents(runId: string, type: string): Promise<ListedEvent[]> {
  const found: ListedEvent[] = [];
  for (let cursor: string | null = null; ; ) {
    const page = await readEvents(runId, { cursor, isWhole: true, ...(type ? { type } : {}) });
    found.push(...page.events);
    if (!page.hasMore || page.cursor === cursor) return found;
    cursor = page.cursor;
  }
}

/** An event with its whole texts. */
export async function readWholeEvent(runId: string, seq: number, signal: AbortSignal): Promise<Readonly<Record<string, Json>>> {
  const path = `/v1/runs/${encodeURIComponent(runId)}/events/${seq}`;
  return await request("GET", path, { query: { include: "state,trace" }, signal });
}

export function eventOf(wire: Readonly<Record<string, Json>>): ListedEvent {
  return {
    seq: Number(wire["seq"]),
    type: String(wire["event_type"]),
    at: new Date(String(wire["ts"])),
    step: typeof wire["step"] === "number" ? wire["step"] : null,
    wire,
  };
}

/** Events as a stream would send them, for a page that has no stream. */
export async function readFrames(path: string, cursor: string | null, signal: AbortSignal): Promise<{ frames: Frame[]; cursor: string }> {
  const page = await request<Schemas["EventsPage"]>("GET", path, { query: { cursor, limit: PAGE_SIZE }, signal });
  const frames = page.items.map((item) => ({ id: String((item as { seq: number }).seq), data: JSON.stringify(item) }));
  return { frames, cursor: page.next_cursor };
}
