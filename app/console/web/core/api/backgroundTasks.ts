/** Calls of tools that run in the background of a run. */
import type { ActionRequest } from "./runActions";
import { request, type QueryOf, type Schemas } from "./client";

export interface BackgroundTask {
  id: string;
  tool: string;
  isDone: boolean;
  /** Null while it runs. */
  outcome: string | null;
  error: string | null;
  attempt: number;
  /** The run that executes it; null for a tool of the server itself. */
  childRunId: string | null;
  createdAt: Date;
  startedAt: Date | null;
  finishedAt: Date | null;
}

/** More tasks of one run aren't shown. */
const MOST_TASKS = 200;

export async function listTasks(runId: string, signal?: AbortSignal): Promise<BackgroundTask[]> {
  const query: QueryOf<"/v1/runs/{run_id}/tasks"> = { limit: MOST_TASKS, order: "asc" };
  const page = await request<Schemas["TaskPage"]>("GET", `${tasksPath(runId)}`, { query, ...(signal ? { signal } : {}) });
  return page.items.map((wire) => ({
    id: wire.id,
    tool: wire.tool_name,
    isDone: wire.status === "done",
    outcome: wire.outcome,
    error: wire.error,
    attempt: wire.attempt,
    childRunId: wire.child_run_id,
    createdAt: new Date(wire.created_at),
    startedAt: wire.started_at ? new Date(wire.started_at) : null,
    finishedAt: wire.finished_at ? new Date(wire.finished_at) : null,
  }));
}

export function cancelTaskRequest(runId: string, { id }: BackgroundTask): ActionRequest {
  return { path: `${tasksPath(runId)}/${encodeURIComponent(id)}/cancel`, body: undefined };
}

export async function cancelTask({ path }: ActionRequest): Promise<void> {
  await request("POST", path);
}

function tasksPath(runId: string): string {
  return `/v1/runs/${encodeURIComponent(runId)}/tasks`;
}
