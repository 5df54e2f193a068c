/** Agents that runs can be started with, and what people have allowed them for good. */
import { request, type QueryOf, type Schemas } from "./client";
import type { ActionRequest } from "./runActions";

export interface Agent {
  id: string;
  version: string;
  model: string;
  description: string;
  tools: string[];
  /** Tools whose calls need a person. */
  approval: string[];
  background: string[];
  handoffs: string[];
  delegates: string[];
  maxRounds: number;
  /** Where a remote agent is; null for one of this server. */
  endpoint: { backend: string; target: string | null } | null;
  capabilities: [name: string, value: string | boolean][];
}

export interface AgentTool {
  name: string;
  description: string;
  /** Names of the parameters with their types; required ones have no question mark. */
  parameters: string[];
  effect: "read" | "idempotent" | "unsafe";
  needsPerson: boolean;
  approvers: { scope: string | null; notStarter: boolean; quorum: number } | null;
  isBackground: boolean;
}

export interface AgentSkill {
  name: string;
  description: string;
  /** Tools that may be called while the skill is in use; null for all. */
  allowedTools: string[] | null;
}

export interface AgentDetail {
  tools: AgentTool[];
  skills: AgentSkill[];
  versions: { version: string; at: Date; isCurrent: boolean }[];
  plugins: string[];
}

export interface Rule {
  id: string;
  scope: string;
  scopeId: string;
  pattern: string;
  arguments: unknown;
  behavior: string;
  reason: string | null;
  by: string;
  at: Date;
}

export async function listAgents(signal?: AbortSignal): Promise<Agent[]> {
  const page = await request<Schemas["AgentPage"]>("GET", "/v1/agents", signal ? { signal } : {});
  return page.items.map(agentOf);
}

export async function readAgent(id: string, signal?: AbortSignal): Promise<AgentDetail> {
  const path = `/v1/agents/${encodeURIComponent(id)}`;
  const wire = await request<Schemas["AgentDetail"]>("GET", path, signal ? { signal } : {});
  return {
    tools: wire.tool_details.map(toolOf),
    skills: wire.skills.map((one) => ({ name: one.name, description: one.description, allowedTools: one.allowed_tools })),
    versions: wire.versions.map((one) => ({ version: one.version, at: new Date(one.created_at), isCurrent: one.is_current })),
    plugins: wire.plugins,
  };
}

function toolOf(wire: Schemas["AgentTool"]): AgentTool {
  return {
    name: wire.name,
    description: wire.description,
    parameters: parametersOf(wire.parameters),
    effect: wire.effect,
    needsPerson: wire.needs_approval,
    approvers: wire.approvers && { scope: wire.approvers.scope, notStarter: wire.approvers.not_starter, quorum: wire.approvers.quorum },
    isBackground: wire.is_background,
  };
}

function parametersOf(schema: Record<string, unknown>): string[] {
  const properties = (schema["properties"] ?? {}) as Record<string, ParameterSchema>;
  const required = new Set((schema["required"] ?? []) as string[]);
  return Object.entries(properties).map(([name, parameter]) => `${name}${required.has(name) ? "" : "?"}: ${typeOf(parameter)}`);
}

interface ParameterSchema {
  type?: string | string[];
  enum?: unknown[];
  anyOf?: ParameterSchema[];
}

/** The type in a few words: `string | null`, `now | later`, `any`. */
function typeOf({ type, enum: values, anyOf }: ParameterSchema): string {
  if (values) return values.map(String).join(" | ");
  if (anyOf) return anyOf.map(typeOf).join(" | ");
  return [type ?? "any"].flat().join(" | ");
}

/** The MCP servers whose tools an agent names, such as `files` of `files/read_*`. */
export function serversOf({ tools }: Agent): string[] {
  return [...new Set(tools.filter((name) => name.includes("/")).map((name) => name.split("/")[0]!))];
}

/** Rules that apply now. */
export async function listRules(agent: string, signal?: AbortSignal): Promise<Rule[]> {
  const query: QueryOf<"/v1/rules"> = { agent_id: agent };
  const page = await request<Schemas["RulePage"]>("GET", "/v1/rules", { query, ...(signal ? { signal } : {}) });
  return page.items
    .filter((wire) => wire.revoked_at === null)
    .map((wire) => ({
      id: wire.id,
      scope: wire.scope,
      scopeId: wire.scope_id,
      pattern: wire.pattern,
      arguments: wire.arguments,
      behavior: wire.behavior,
      reason: wire.reason,
      by: wire.created_by,
      at: new Date(wire.created_at),
    }));
}

export function revokeRuleRequest(id: string): ActionRequest {
  return { method: "DELETE", path: `/v1/rules/${encodeURIComponent(id)}`, body: undefined };
}

export async function revokeRule(action: ActionRequest): Promise<void> {
  await request("DELETE", action.path);
}

function agentOf(wire: Schemas["Agent"]): Agent {
  return {
    id: wire.id,
    version: wire.version,
    model: wire.model,
    description: wire.description,
    tools: wire.tools,
    approval: wire.approval,
    background: wire.background,
    handoffs: wire.handoffs,
    delegates: wire.delegates,
    maxRounds: wire.max_rounds,
    endpoint: wire.endpoint,
    capabilities: Object.entries(wire.capabilities).map(([name, value]) => [name.replaceAll("_", " "), value]),
  };
}
