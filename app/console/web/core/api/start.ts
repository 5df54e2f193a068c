/** Starts runs. */
import { request, type Schemas } from "./client";

/** Start a run and return its id. `runId` makes repetitions harmless. */
export async function startRun(agent: string, text: string, runId: string, threadKey: string): Promise<string> {
  const body = {
    run_id: runId,
    agent_id: agent,
    messages: [{ role: "user", content: text }],
    ...(threadKey ? { thread_key: threadKey } : {}),
  };
  const run = await request<Schemas["Run"]>("POST", "/v1/runs", { body });
  return run.id;
}

/** Start a run on a new thread, and return the id of the thread. */
export async function startThread(agent: string, text: string, runId: string): Promise<string> {
  const body = { run_id: runId, agent_id: agent, messages: [{ role: "user", content: text }] };
  return (await request<Schemas["Run"]>("POST", "/v1/runs", { body })).thread_id;
}
