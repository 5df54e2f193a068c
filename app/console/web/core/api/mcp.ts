/** MCP servers: their state, their tools, and what has changed since a person accepted it. */
import { request, type QueryOf, type Schemas } from "./client";
import type { JsonObject } from "./messages";

export type ServerState = Schemas["McpServer"]["state"];

export interface McpServer {
  id: string;
  transport: "stdio" | "http";
  state: ServerState;
  protocol: string | null;
  version: string | null;
  lastError: string | null;
  /** What happens to tools that are new or changed. */
  pin: "off" | "warn" | "require";
  listed: number;
  offered: number;
  /** Tools that are new or changed since they were accepted. */
  drifted: number;
}

export interface McpTool {
  name: string;
  /** Its name for models; null if it can't be used. */
  modelName: string | null;
  description: string;
  effect: "read" | "idempotent" | "unsafe" | null;
  digest: string;
  isListed: boolean;
  isOffered: boolean;
  /** Whether a person should look at what the server says about it: it is new, changed, or was never accepted. */
  isToAccept: boolean;
  drift: "new" | "changed" | null;
  described: JsonObject;
  accepted: JsonObject | null;
  acceptedBy: string | null;
  acceptedAt: Date | null;
}

export interface McpServerDetail extends McpServer {
  processes: { worker: string; state: ServerState; failures: number; starts: number; connections: number; lastError: string | null; at: Date }[];
  tools: McpTool[];
  leftOut: [tool: string, reason: string][];
}

const PAGE_SIZE = 100;

export async function listServers(signal?: AbortSignal): Promise<McpServer[]> {
  const query: QueryOf<"/v1/mcp-servers"> = { limit: PAGE_SIZE };
  const page = await request<Schemas["McpServerPage"]>("GET", "/v1/mcp-servers", { query, ...(signal ? { signal } : {}) });
  return page.items.map(serverOf);
}

export async function readServer(id: string, signal?: AbortSignal): Promise<McpServerDetail> {
  return detailOf(await request<Schemas["McpServerDetails"]>("GET", path(id), signal ? { signal } : {}));
}

/** Closes its connections in all processes, and forgets failed starts. */
export async function restartServer(id: string): Promise<McpServerDetail> {
  return detailOf(await request<Schemas["McpServerDetails"]>("POST", restartPath(id)));
}

/** Only what was shown is accepted: a digest that has changed meanwhile is refused. */
export async function acceptTools(id: string, digests: readonly string[]): Promise<McpServerDetail> {
  return detailOf(await request<Schemas["McpServerDetails"]>("POST", acceptPath(id), { body: { digests } }));
}

export const restartPath = (id: string) => `${path(id)}/restart`;
export const acceptPath = (id: string) => `${path(id)}/tools/accept`;

function path(id: string): string {
  return `/v1/mcp-servers/${encodeURIComponent(id)}`;
}

function serverOf(wire: Schemas["McpServer"]): McpServer {
  return {
    id: wire.id,
    transport: wire.transport,
    state: wire.state,
    protocol: wire.protocol,
    version: wire.version,
    lastError: wire.last_error,
    pin: wire.pin,
    listed: wire.tools_listed,
    offered: wire.tools_offered,
    drifted: wire.tools_drifted,
  };
}

function detailOf(wire: Schemas["McpServerDetails"]): McpServerDetail {
  return {
    ...serverOf(wire),
    processes: wire.processes.map((one) => ({
      worker: one.worker_id,
      state: one.state,
      failures: one.failures,
      starts: one.starts,
      connections: one.instances,
      lastError: one.last_error,
      at: new Date(one.updated_at),
    })),
    tools: wire.tools.map((one) => ({
      name: one.name,
      modelName: one.model_name,
      description: one.description,
      effect: one.effect,
      digest: one.digest,
      isListed: one.is_listed,
      isOffered: one.is_offered,
      isToAccept: one.is_listed && (one.drift !== null || (wire.pin === "require" && one.accepted_by === null)),
      drift: one.drift,
      described: one.described as JsonObject,
      accepted: one.accepted as JsonObject | null,
      acceptedBy: one.accepted_by,
      acceptedAt: one.accepted_at ? new Date(one.accepted_at) : null,
    })),
    leftOut: Object.entries(wire.left_out),
  };
}
