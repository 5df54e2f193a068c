// What a TypeScript program does with types that are generated from the OpenAPI document.
import type { components, operations, paths } from "./api";

type AgentEvent = components["schemas"]["AgentEvent"];

export const start: operations["startRun"]["requestBody"]["content"]["application/json"] = {
  agent_id: "demo",
  messages: [{ role: "user", content: "hello" }],
};
export const token: components["schemas"]["StreamTokenRequest"] = { inbox: true };
export const query: paths["/v1/tickets"]["get"]["parameters"]["query"] = { kind: "approval" };

export function text(event: AgentEvent): string {
  switch (event.event_type) {
    case "text_delta":
      return event.delta;
    case "tool_call_start":
      return event.name;
    default:
      return `${event.seq} ${event.ts}`;
  }
}

export function isOver(run: components["schemas"]["Run"]): boolean {
  // @ts-expect-error A status that doesn't exist.
  const never = run.status === "finished";
  return run.status === "done" || never;
}
