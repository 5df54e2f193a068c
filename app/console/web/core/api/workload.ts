/** What the server has to do and what it did: processes, the queue, and how runs ended. */
import { request, type QueryOf, type Schemas } from "./client";

export interface Queue {
  ready: number;
  behind: number;
  executing: number;
  waiting: Readonly<Record<string, number>>;
  openTickets: number;
  /** No count is larger. */
  countedUpTo: number;
}

export interface Worker {
  id: string;
  role: string;
  host: string;
  pid: number;
  isAlive: boolean;
  executing: number;
  startedAt: Date;
  heartbeatAt: Date;
}

export interface Bucket {
  at: Date;
  runs: Readonly<Record<string, number>>;
  tokens: number;
}

export async function readQueue(signal?: AbortSignal): Promise<Queue> {
  const wire = await request<Schemas["Queue"]>("GET", "/v1/queue", signal ? { signal } : {});
  return {
    ready: wire.ready,
    behind: wire.queued_behind,
    executing: wire.executing,
    waiting: wire.waiting,
    openTickets: wire.open_tickets,
    countedUpTo: wire.counted_up_to,
  };
}

export async function listWorkers(signal?: AbortSignal): Promise<Worker[]> {
  const query: QueryOf<"/v1/workers"> = { limit: 100 };
  const page = await request<Schemas["WorkerPage"]>("GET", "/v1/workers", { query, ...(signal ? { signal } : {}) });
  return page.items.map((wire) => ({
    id: wire.id,
    role: wire.role,
    host: wire.host,
    pid: wire.pid,
    isAlive: wire.is_alive,
    executing: wire.executing,
    startedAt: new Date(wire.started_at),
    heartbeatAt: new Date(wire.last_heartbeat_at),
  }));
}

/** The last 24 hours, by hour. */
export async function readStatistics(signal?: AbortSignal): Promise<Bucket[]> {
  const wire = await request<Schemas["RunStatistics"]>("GET", "/v1/stats/runs", signal ? { signal } : {});
  return wire.buckets.map((one) => ({ at: new Date(one.begins_at), runs: one.runs, tokens: one.input_tokens + one.output_tokens }));
}
