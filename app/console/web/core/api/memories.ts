/** What agents keep across runs: whose it is, and how a person erases it. */
import { apiUrl, request, type QueryOf, type Schemas } from "./client";
import type { Json } from "./messages";

export interface Memory {
  id: string;
  scope: Schemas["Memory"]["scope"];
  subject: string | null;
  key: string;
  value: Json;
  agentId: string | null;
  runId: string | null;
  savedBy: string;
  changedAt: Date;
}

/** Words to search for, and whether it is about all owners or only about the caller. */
export interface MemoryQuery {
  words: string;
  isOfAll: boolean;
}

const PAGE_SIZE = 50;

export async function listMemories(
  wanted: MemoryQuery,
  cursor: string | null,
  signal?: AbortSignal,
): Promise<{ items: Memory[]; next: string | null }> {
  const query: QueryOf<"/v1/memories"> = { ...filters(wanted), limit: PAGE_SIZE, ...(cursor ? { cursor } : {}) };
  const page = await request<Schemas["MemoryPage"]>("GET", "/v1/memories", { query, ...(signal ? { signal } : {}) });
  return { items: page.items.map(memoryOf), next: page.next_cursor };
}

/** The address of a file with all memories that the list has, a JSON object per line. */
export function exportUrl(wanted: MemoryQuery): string {
  return apiUrl("/v1/memory-export", filters(wanted));
}

export function memoryPath({ key, scope, subject }: Memory): string {
  const owner = new URLSearchParams(subject === null ? { scope } : { scope, subject });
  return `/v1/memories/${encodeURIComponent(key)}?${owner}`;
}

export function forget(memory: Memory): Promise<void> {
  return request("DELETE", memoryPath(memory));
}

function filters({ words, isOfAll }: MemoryQuery): { scope: "all" | "own"; q?: string } {
  return { scope: isOfAll ? "all" : "own", ...(words ? { q: words } : {}) };
}

function memoryOf(wire: Schemas["Memory"]): Memory {
  return {
    id: wire.id,
    scope: wire.scope,
    subject: wire.subject,
    key: wire.key,
    value: wire.value as Json,
    agentId: wire.agent_id,
    runId: wire.run_id,
    savedBy: wire.saved_by,
    changedAt: new Date(wire.updated_at),
  };
}
