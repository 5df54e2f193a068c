/** Tokens and costs of a period, by model and by agent. */
import { request, type QueryOf, type Schemas } from "./client";

export interface Spent {
  name: string;
  requests: number;
  inputTokens: number;
  outputTokens: number;
  /** US dollars; null if no request has a known price. */
  cost: number | null;
  unpriced: number;
}

const MOST_GROUPS = 20;

/** The last 30 days. It needs the scope `usage:read`. */
export async function readSpending(by: "model" | "agent", signal?: AbortSignal): Promise<Spent[]> {
  const query: QueryOf<"/v1/usage"> = { group_by: by, limit: MOST_GROUPS };
  const page = await request<Schemas["UsageGroupPage"]>("GET", "/v1/usage", { query, ...(signal ? { signal } : {}) });
  return page.items.map((wire) => ({
    name: String((wire.group as Record<string, unknown>)[by] ?? "unknown"),
    requests: wire.requests,
    inputTokens: wire.input_tokens,
    outputTokens: wire.output_tokens,
    cost: wire.cost_usd,
    unpriced: wire.unpriced_requests,
  }));
}
