/** One MCP server: its state in each process, its tools, and what has changed since a person accepted it. */
import { useState } from "preact/hooks";
import { readServer, restartPath, restartServer, type McpServerDetail } from "../core/api/mcp";
import type { Me } from "../core/api/session";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { ago, fullTime, useNow } from "../core/time";
import { idInPath, pageUrl } from "../core/url";
import { usePoll } from "../core/visible";
import { Icon } from "../parts/Icon";
import { ActionDialog } from "../parts/run/ActionDialog";
import { DriftBadge, ServerStateMark } from "../parts/mcp/ServerState";
import { ServerTools } from "../parts/mcp/ServerTools";
import { Shell } from "../parts/Shell";
import { Failure, Skeleton } from "../parts/States";
import { SafeText } from "../parts/Text";

const PAUSE = 5_000;

function McpServer() {
  const id = idInPath() ?? "";
  const { me, error: meError } = useMe();
  const [server, setServer] = useState<McpServerDetail | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const problem = meError ?? error;
  usePoll(PAUSE, String(reading), async (signal) => {
    try {
      setServer(await readServer(id, signal));
      setError(null);
    } catch (found) {
      if (!signal.aborted) setError(found);
    }
  });
  useTitle(`MCP server ${id}`);
  useReady(server !== null || problem !== null);
  return (
    <Shell page="System" me={me} live={problem ? "waiting" : server ? "live" : "connecting"}>
      <div class="page stack system">
        <p>
          <a href={pageUrl.system()} class="row">
            <Icon name="back" /> System
          </a>
        </p>
        {problem ? <Failure error={problem} onRetry={() => setReading(reading + 1)} /> : null}
        {!server && !problem && <Skeleton rows={8} />}
        {server && <View server={server} me={me} onChanged={setServer} />}
      </div>
    </Shell>
  );
}

interface ViewProps {
  server: McpServerDetail;
  me: Me | null;
  onChanged(server: McpServerDetail): void;
}

function View({ server, me, onChanged }: ViewProps) {
  const [isAsked, ask] = useState(false);
  const refusal = me && !me.may("admin") ? "Needs the scope admin" : null;
  return (
    <>
      <header class="run-head">
        <div class="run-actions">
          <button disabled={refusal !== null} {...(refusal ? { title: refusal } : {})} onClick={() => ask(true)}>
            Restart
          </button>
        </div>
        <h1>
          MCP server {server.id} <ServerStateMark state={server.state} /> <DriftBadge server={server} />
        </h1>
        <p class="row small quiet">
          <span>{server.transport === "stdio" ? "a program" : "an address"}</span>
          {server.version && <span><SafeText text={server.version} /></span>}
          {server.protocol && <span>protocol {server.protocol}</span>}
          <span>
            agents get {server.offered} of {server.listed} tools
          </span>
        </p>
      </header>
      {server.lastError && (
        <p class="notice bad">
          <SafeText text={server.lastError} />
        </p>
      )}
      <ServerTools server={server} me={me} onChanged={onChanged} />
      <Processes server={server} />
      {isAsked && (
        <ActionDialog
          title={`Restart ${server.id}?`}
          name="Restart the server"
          isDangerous
          request={{ path: restartPath(server.id), body: undefined }}
          send={async () => onChanged(await restartServer(server.id))}
          onClose={() => ask(false)}
        >
          <p>Its connections are closed in all processes, and calls that are open now are interrupted. It starts again when an agent needs it.</p>
        </ActionDialog>
      )}
    </>
  );
}

function Processes({ server: { processes } }: { server: McpServerDetail }) {
  const now = useNow(5);
  if (!processes.length) return null;
  return (
    <section class="stack" aria-label="Processes">
      <h2>In each process</h2>
      <div class="scroll" tabIndex={0} role="region" aria-label="Table of processes">
        <table class="table">
          <thead>
            <tr>
              <th scope="col">State</th>
              <th scope="col">Process</th>
              <th scope="col" class="right">Connections</th>
              <th scope="col" class="right">Starts</th>
              <th scope="col" class="right">Failed in a row</th>
              <th scope="col" class="right">Reported</th>
            </tr>
          </thead>
          <tbody>
            {processes.map((one) => (
              <tr key={one.worker}>
                <td>
                  <ServerStateMark state={one.state} />
                </td>
                <td class="mono small">{one.worker}</td>
                <td class="right number">{one.connections}</td>
                <td class="right number">{one.starts}</td>
                <td class="right number">{one.failures}</td>
                <td class="right quiet number" title={fullTime(one.at)}>
                  {ago(one.at, now)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

draw(McpServer);
