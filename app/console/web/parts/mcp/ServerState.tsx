/** The state of an MCP server by shape, word and colour. */
import type { McpServer, ServerState } from "../../core/api/mcp";
import { Mark } from "../Status";

type Look = Parameters<typeof Mark>[0]["look"];

const LOOKS: Record<ServerState, Look> = {
  up: ["ok", "running", "ok"],
  idle: ["queued", "not needed now", "quiet"],
  starting: ["running", "starting", "busy"],
  failing: ["failed", "failing", "bad"],
  given_up: ["blocked", "given up for now", "bad"],
};

export function ServerStateMark({ state }: { state: ServerState }) {
  return <Mark look={LOOKS[state]} />;
}

export function DriftBadge({ server: { drifted, pin, listed, offered } }: { server: McpServer }) {
  const count = pin === "require" ? listed - offered : drifted;
  if (count <= 0) return null;
  const what = count === 1 ? "1 tool" : `${count} tools`;
  return <span class="badge warn">{pin === "require" ? `${what} not offered` : `${what} changed`}</span>;
}
