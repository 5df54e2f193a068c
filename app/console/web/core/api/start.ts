/** Starts runs. */
import { saidBy, type ActionRequest } from "./runActions";
import { request, type Schemas } from "./client";

/** Without `runId` the server makes one. `threadKey` names the conversation. */
export function startRequest(agent: string, text: string, { runId, threadKey }: { runId?: string; threadKey?: string } = {}): ActionRequest {
  const body = {
    ...(runId ? { run_id: runId } : {}),
    agent_id: agent,
    messages: [saidBy(text)],
    ...(threadKey ? { thread_key: threadKey } : {}),
  };
  return { path: "/v1/runs", body };
}

/** `runId` makes repetitions of a request harmless that has none yet. */
export async function startRun({ path, body: asked }: ActionRequest, runId?: string): Promise<{ id: string; threadId: string }> {
  const body = runId ? { ...(asked as object), run_id: runId } : asked;
  const run = await request<Schemas["Run"]>("POST", path, { body });
  return { id: run.id, threadId: run.thread_id };
}
