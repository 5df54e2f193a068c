/** MCP servers with their state, each leading to its page. */
import { useState } from "preact/hooks";
import { listServers, type McpServer } from "../../core/api/mcp";
import { pageUrl } from "../../core/url";
import { usePoll } from "../../core/visible";
import { Failure, Skeleton } from "../States";
import { SafeText } from "../Text";
import { DriftBadge, ServerStateMark } from "./ServerState";

const PAUSE = 10_000;

/** `only` limits the table to the servers of an agent. Without servers there is no section. */
export function ServerTable({ only }: { only?: readonly string[] }) {
  const [servers, setServers] = useState<readonly McpServer[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  usePoll(PAUSE, only?.join() ?? "all", async (signal) => {
    try {
      setServers(await listServers(signal));
      setError(null);
    } catch (problem) {
      if (!signal.aborted) setError(problem);
    }
  });
  const shown = servers?.filter(({ id }) => !only || only.includes(id)) ?? null;
  if (shown && !shown.length && !error) return null;
  if (!shown && !error && !only) return null;
  return (
    <section class="stack" aria-label="MCP servers">
      <h2>MCP servers</h2>
      {error ? <Failure error={error} /> : null}
      {!shown && !error && <Skeleton rows={2} />}
      {shown && shown.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Table of MCP servers">
          <table class="table">
            <thead>
              <tr>
                <th scope="col">Server</th>
                <th scope="col">State</th>
                <th scope="col" class="right">Tools offered</th>
                <th scope="col">Last error</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((server) => (
                <Row key={server.id} server={server} />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

function Row({ server }: { server: McpServer }) {
  const { id, state, offered, listed, lastError } = server;
  return (
    <tr>
      <td>
        <a href={pageUrl.mcpServer(id)}>{id}</a> <DriftBadge server={server} />
      </td>
      <td>
        <ServerStateMark state={state} />
      </td>
      <td class="right number">
        {offered} of {listed}
      </td>
      <td class="quiet wrap">{lastError ? <SafeText text={lastError} /> : "none"}</td>
    </tr>
  );
}
