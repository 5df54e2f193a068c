/** Lists of runs. */
import { rowOf, type Run, type RunRow } from "./runs";
import { request, type QueryOf, type Schemas } from "./client";

export interface RunQuery {
  status?: Run["status"] | undefined;
  waitingReason?: string | undefined;
  outcome?: string | undefined;
  agent?: string | undefined;
  code?: string | undefined;
  createdAfter?: Date | undefined;
  createdBefore?: Date | undefined;
  /** Only the tree below this run. */
  root?: string | undefined;
  metadata?: Readonly<Record<string, string>> | undefined;
  order?: "asc" | "desc" | undefined;
  cursor?: string | undefined;
  limit?: number | undefined;
  ids?: readonly string[] | undefined;
}

export interface ListedRun extends RunRow {
  /** The beginning of what the run was asked. */
  preview: string;
  /** Runs that it has started. The number ends at 1,000. */
  children: number;
}

export interface RunPage {
  items: ListedRun[];
  next: string | null;
}

type WireQuery = QueryOf<"/v1/run-summaries">;

export async function listRuns(query: RunQuery, signal?: AbortSignal): Promise<RunPage> {
  const wanted: WireQuery = {
    status: query.status ?? null,
    waiting_reason: (query.waitingReason as WireQuery["waiting_reason"]) ?? null,
    outcome: (query.outcome as WireQuery["outcome"]) ?? null,
    agent_id: query.agent ?? null,
    termination_code: query.code ?? null,
    created_after: query.createdAfter?.toISOString() ?? null,
    created_before: query.createdBefore?.toISOString() ?? null,
    root_run_id: query.root ?? null,
    cursor: query.cursor ?? null,
    ids: query.ids?.join(",") ?? null,
    ...(query.order ? { order: query.order } : {}),
    ...(query.limit ? { limit: query.limit } : {}),
  };
  const metadata = Object.entries(query.metadata ?? {}).map(([name, value]) => [`metadata.${name}`, value]);
  const page = await request<Schemas["RunSummaryPage"]>("GET", "/v1/run-summaries", {
    query: { ...wanted, ...Object.fromEntries(metadata) },
    ...(signal ? { signal } : {}),
  });
  return { items: page.items.map((wire) => ({ ...rowOf(wire), preview: wire.input_preview, children: wire.child_runs })), next: page.has_more ? page.next_cursor : null };
}
