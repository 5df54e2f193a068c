/** What a person can do to a run. Each action is one request. */
import { newId } from "../ids";
import { request, type Schemas } from "./client";

/** A request as it is sent, so that it can be shown as a curl command too. */
export interface ActionRequest {
  /** `POST` without it. */
  method?: "POST" | "PATCH" | "DELETE";
  path: string;
  body: unknown;
  /** Beside those of each request. */
  headers?: Record<string, string>;
}

export type InputMode = "queue" | "steer" | "interrupt_then_queue" | "resume_open_run";

export function cancelRequest(runId: string, reason: string): ActionRequest {
  return { path: `/v1/runs/${encodeURIComponent(runId)}/cancel`, body: reason ? { reason } : {} };
}

export function pauseRequest(runId: string, reason: string): ActionRequest {
  return { path: `/v1/runs/${encodeURIComponent(runId)}/pause`, body: reason ? { reason } : {} };
}

export function resumeRequest(runId: string): ActionRequest {
  return { path: `/v1/runs/${encodeURIComponent(runId)}/resume`, body: undefined };
}

export function retryRequest(runId: string, version: "same" | "current"): ActionRequest {
  return { path: `/v1/runs/${encodeURIComponent(runId)}/retry`, body: { agent_version: version } };
}

export function forkRequest(threadId: string, toSeq: number, title: string): ActionRequest {
  const path = `/v1/threads/${encodeURIComponent(threadId)}/fork`;
  return { path, body: { to_seq: toSeq, ...(title ? { title } : {}) } };
}

export function runInputRequest(runId: string, text: string, mode: InputMode): ActionRequest {
  return { path: `/v1/runs/${encodeURIComponent(runId)}/inputs`, body: { messages: [saidBy(text)], mode } };
}

export function threadMessageRequest(threadId: string, agent: string, text: string, mode: InputMode): ActionRequest {
  const body = { messages: [saidBy(text)], mode, ...(agent ? { agent_id: agent } : {}) };
  return { path: `/v1/threads/${encodeURIComponent(threadId)}/messages`, body };
}

/** Wait for a moment, so that the answer mostly shows the run at its end. */
export async function cancelRun(action: ActionRequest): Promise<void> {
  await request("POST", action.path, { body: action.body, query: { wait: 10 } });
}

export async function pauseRun(action: ActionRequest): Promise<void> {
  await request("POST", action.path, { body: action.body, query: { wait: 2 } });
}

export async function resumeRun(action: ActionRequest, key: string): Promise<void> {
  await post(action, key);
}

/** The id of the new run. */
export async function retryRun(action: ActionRequest, key: string): Promise<string> {
  return (await post<Schemas["Run"]>(action, key)).id;
}

/** The id of the new thread. */
export async function forkThread(action: ActionRequest, key: string): Promise<string> {
  return (await post<Schemas["Thread"]>(action, key)).id;
}

/** The run that reads the message. */
export async function sendInput(action: ActionRequest, key: string): Promise<string> {
  return (await post<Schemas["InputsAccepted"]>(action, key)).run_id;
}

/** A key makes repetitions of one action harmless. */
export function actionKey(): string {
  return newId();
}

function post<T>({ path, body }: ActionRequest, key: string): Promise<T> {
  return request<T>("POST", path, { ...(body === undefined ? {} : { body }), headers: { "Idempotency-Key": key } });
}

export function saidBy(text: string) {
  return { role: "user", content: text };
}
