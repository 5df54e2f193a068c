/** Threads: their record, the snapshot that a stream continues, and messages that no run has read yet. */
import { messageOf } from "./messages";
import { saidBy, type ActionRequest } from "./runActions";
import { openCallOf, runOf, type Run, type Snapshot } from "./runs";
import { ticketOf } from "./tickets";
import { request, type QueryOf, type Schemas } from "./client";

export interface Thread {
  id: string;
  key: string | null;
  title: string | null;
  resourceId: string | null;
  latestRunId: string | null;
  openRunId: string | null;
  queueLength: number;
  messageCount: number;
  createdAt: Date;
  updatedAt: Date;
  /** The first words of a user, for a thread without a name; only in a list. */
  firstWords: string;
  /** The beginning of what was said last; only in a list. */
  last: { by: "user" | "assistant"; text: string; at: Date } | null;
}

export interface PendingInput {
  id: string;
  runId: string;
  text: string;
  revision: number;
  createdAt: Date;
}

export interface ThreadSnapshot extends Omit<Snapshot, "run"> {
  thread: Thread;
  run: Run | null;
}

export async function listThreads(words: string, cursor: string | null, signal?: AbortSignal): Promise<{ items: Thread[]; next: string | null }> {
  const usual: QueryOf<"/v1/threads"> = { cursor, include: "first_message,last_message" };
  const query = words ? { ...usual, ...searchOf(words) } : { ...usual, sort: "last_run_at" as const };
  const page = await request<Schemas["ListedThreadPage"]>("GET", "/v1/threads", { query, ...(signal ? { signal } : {}) });
  return { items: page.items.map((wire) => ({ ...threadOf(wire), firstWords: wire.first_message?.text ?? "", last: lastOf(wire.last_message) })), next: page.has_more ? page.next_cursor : null };
}

export async function readThreadSnapshot(id: string, signal?: AbortSignal): Promise<ThreadSnapshot> {
  const wire = await request<Schemas["ThreadSnapshot"]>("GET", `${path(id)}/snapshot`, signal ? { signal } : {});
  return {
    thread: threadOf(wire.thread),
    run: wire.run ? runOf(wire.run) : null,
    messages: wire.messages.map(messageOf),
    openText: wire.open_text,
    openCalls: wire.open_tool_calls.map(openCallOf),
    tickets: wire.tickets.map(ticketOf),
    lastEventId: wire.last_event_id,
  };
}

export async function listPending(id: string, signal?: AbortSignal): Promise<PendingInput[]> {
  const query: QueryOf<"/v1/threads/{thread_id}/inputs"> = { status: "pending", order: "asc" };
  const page = await request<Schemas["PendingInputPage"]>("GET", `${path(id)}/inputs`, { query, ...(signal ? { signal } : {}) });
  return page.items.map((wire) => ({
    id: wire.id,
    runId: wire.run_id,
    text: textOf(wire.message),
    revision: wire.revision,
    createdAt: new Date(wire.created_at),
  }));
}

export function changePendingRequest(threadId: string, input: PendingInput, text: string): ActionRequest {
  return { method: "PATCH", path: inputPath(threadId, input), body: { message: saidBy(text) }, headers: asShown(input) };
}

export function retractPendingRequest(threadId: string, input: PendingInput): ActionRequest {
  return { method: "DELETE", path: inputPath(threadId, input), body: undefined, headers: asShown(input) };
}

export async function sendPendingAction({ method = "PATCH", path, body, headers = {} }: ActionRequest): Promise<void> {
  await request(method, path, { ...(body === undefined ? {} : { body }), headers });
}

/** The action takes place only if the message is as it was shown. */
function asShown(input: PendingInput): Record<string, string> {
  return { "If-Match": `"${input.revision}"` };
}

export function threadEventsPath(id: string): string {
  return `${path(id)}/events`;
}

function threadOf(wire: Schemas["Thread"]): Thread {
  return {
    id: wire.id,
    key: wire.key,
    title: wire.title,
    resourceId: wire.resource_id,
    latestRunId: wire.latest_run_id,
    openRunId: wire.open_run_id,
    queueLength: wire.queue_length,
    messageCount: wire.message_count,
    createdAt: new Date(wire.created_at),
    updatedAt: new Date(wire.updated_at),
    firstWords: "",
    last: null,
  };
}

function lastOf(wire: Schemas["MessagePreview"] | null | undefined): Thread["last"] {
  return wire ? { by: wire.role, text: wire.text, at: new Date(wire.created_at) } : null;
}

/** `key:customer-17` finds one thread by its name, other words find titles. */
function searchOf(words: string): QueryOf<"/v1/threads"> {
  return words.startsWith("key:") ? { key: words.slice(4).trim() } : { title: words };
}

function textOf(message: unknown): string {
  const content = (message as { content?: unknown }).content;
  if (typeof content === "string") return content;
  return Array.isArray(content) ? content.map((part: { text?: string }) => part.text ?? "").join("") : "";
}

function path(id: string): string {
  return `/v1/threads/${encodeURIComponent(id)}`;
}

function inputPath(threadId: string, { id }: PendingInput): string {
  return `${path(threadId)}/inputs/${encodeURIComponent(id)}`;
}
