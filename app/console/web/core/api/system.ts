/** Health and metrics of the server that answers. Both need no key. */
import { ApiError, apiUrl, request, send, type Schemas } from "./client";

export interface Health {
  status: "healthy" | "degraded" | "unhealthy" | "draining";
  components: [name: string, state: string][];
  schema: { revision: string | null; expected: string; status: string } | null;
  relay: { transport: string; status: string; since: Date };
}

/** An unready server answers 503 with the same body. */
export async function readHealth(signal?: AbortSignal): Promise<Health> {
  try {
    return healthOf(await request<Schemas["Health"]>("GET", "/health", signal ? { signal } : {}));
  } catch (error) {
    if (error instanceof ApiError && "components" in error.facts) return healthOf(error.facts as unknown as Schemas["Health"]);
    throw error;
  }
}

export async function readMetrics(signal?: AbortSignal): Promise<string> {
  const response = await send("GET", "/metrics", { headers: { Accept: "text/plain" }, ...(signal ? { signal } : {}) });
  return response.text();
}

export const metricsUrl = () => apiUrl("/metrics");

function healthOf(wire: Schemas["Health"]): Health {
  return {
    status: wire.status,
    components: Object.entries(wire.components),
    schema: wire.database_schema,
    relay: { transport: wire.relay.transport, status: wire.relay.status, since: new Date(wire.relay.since) },
  };
}
