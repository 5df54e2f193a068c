/** Messages of a thread's log. */
import type { Schemas } from "./client";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export interface ToolCall {
  id: string;
  name: string;
  arguments: Json;
}

export interface ToolResult {
  text: string;
  /** `waiting`, or the outcome. */
  status: string;
  data: Json | undefined;
  /** The arguments, if a person edited them. */
  edited: Json | null;
}

export interface Media {
  type: string;
  mediaType: string;
  base64: string | null;
}

export interface Message {
  seq: number;
  id: string;
  role: string;
  text: string;
  media: Media[];
  calls: ToolCall[];
  /** The call that a tool message answers. */
  callId: string | null;
  result: ToolResult | null;
  cutShort: string | null;
  isHidden: boolean;
  rolledBackBy: string | null;
  runId: string | null;
  step: number | null;
  at: Date | null;
}

export function messageOf(wire: Schemas["Message"]): Message {
  const parts = (wire.content ?? []) as { type: string; text?: string; media_type?: string; source?: Record<string, string> }[];
  const metadata = wire.metadata ?? {};
  return {
    seq: wire.seq,
    id: wire.id,
    role: wire.role,
    text: parts.map((part) => (part.type === "text" ? (part.text ?? "") : "")).join(""),
    media: parts.filter((part) => part.type !== "text").map(mediaOf),
    calls: (wire.tool_calls ?? []).map(callOf),
    callId: wire.tool_call_id ?? null,
    result: wire.result ? resultOf(wire.result, (wire.edited_arguments as Json | undefined) ?? null) : null,
    cutShort: wire.cut_short ?? null,
    isHidden: wire.visibility === "internal",
    rolledBackBy: wire.rolled_back_by_run_id ?? null,
    runId: (metadata["run_id"] as string | undefined) ?? null,
    step: (metadata["step_index"] as number | undefined) ?? null,
    at: wire.created_at ? new Date(wire.created_at) : null,
  };
}

export function callOf(wire: Record<string, unknown>): ToolCall {
  return {
    id: String(wire["tool_call_id"] ?? ""),
    name: String(wire["name"] ?? ""),
    arguments: (wire["arguments"] ?? null) as Json,
  };
}

export function resultOf(wire: { text?: unknown; status?: unknown; outcome?: unknown; data?: unknown }, edited: Json | null = null): ToolResult {
  const status = String(wire.outcome ?? wire.status ?? "");
  return { text: String(wire.text ?? ""), status, data: wire.data as Json | undefined, edited };
}

function mediaOf(part: { type: string; media_type?: string; source?: Record<string, string> }): Media {
  return {
    type: part.type,
    mediaType: part.source?.["media_type"] ?? part.media_type ?? "",
    base64: part.source?.["data"] ?? null,
  };
}
