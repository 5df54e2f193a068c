/** All about one agent: what it may do, what was allowed for good, and its last runs. */
import { serversOf, type Agent } from "../../core/api/agents";
import { listRuns } from "../../core/api/runLists";
import type { Me } from "../../core/api/session";
import { useRead } from "../../core/read";
import { pageUrl, withQuery } from "../../core/url";
import { RunTable } from "../run/RunTable";
import { Failure, Skeleton } from "../States";
import { SafeText } from "../Text";
import { versionOf } from "../tickets/TicketCard";
import { ServerTable } from "../mcp/ServerTable";
import { AgentTools } from "./AgentTools";
import { AgentRules } from "./AgentRules";
import { TryIt } from "./TryIt";

const SHOWN_RUNS = 5;

export function AgentCard({ agent, me }: { agent: Agent; me: Me | null }) {
  const { id, description, endpoint, capabilities } = agent;
  return (
    <article class="card agent-card">
      <header>
        <h1>{id}</h1>
        <p class="quiet">
          <SafeText text={description || "Without a description"} />
        </p>
      </header>
      <TryIt agent={id} me={me} label={`Try it: write to ${id}`}>
        <span class="quiet small">Begins a new thread.</span>
      </TryIt>
      <section>
        <h2>What it is</h2>
        <dl class="facts">
          <dt>Model</dt>
          <dd>{agent.model}</dd>
          <dt>Version</dt>
          <dd class="mono" title={agent.version}>
            {versionOf(agent.version)}
          </dd>
          <dt>Rounds at most</dt>
          <dd>{agent.maxRounds}</dd>
          {endpoint && (
            <>
              <dt>Runs at</dt>
              <dd>
                {endpoint.backend} {endpoint.target}
              </dd>
            </>
          )}
          <Names name="Gives work to" ids={agent.delegates} />
          <Names name="Hands over to" ids={agent.handoffs} />
        </dl>
      </section>
      <AgentTools key={agent.id} agent={agent} />
      {serversOf(agent).length > 0 && <ServerTable only={serversOf(agent)} />}
      <AgentRules agent={id} me={me} />
      <LastRuns agent={id} me={me} />
      <details>
        <summary class="small quiet">Capabilities</summary>
        <dl class="facts small">
          {capabilities.map(([name, value]) => [<dt key={name}>{name}</dt>, <dd key={`${name}=`}>{typeof value === "boolean" ? (value ? "yes" : "no") : value.replaceAll("_", " ")}</dd>])}
        </dl>
      </details>
    </article>
  );
}

function Names({ name, ids }: { name: string; ids: readonly string[] }) {
  if (!ids.length) return null;
  return (
    <>
      <dt>{name}</dt>
      <dd class="row">
        {ids.map((id) => (
          <a key={id} href={pageUrl.agent(id)}>
            {id}
          </a>
        ))}
      </dd>
    </>
  );
}

function LastRuns({ agent, me }: { agent: string; me: Me | null }) {
  const { value, error, retry } = useRead((signal) => listRuns({ agent, limit: SHOWN_RUNS }, signal), agent);
  const runs = value?.items;
  return (
    <section>
      <h2>Last runs</h2>
      {error ? <Failure error={error} onRetry={retry} /> : null}
      {!runs && !error && <Skeleton rows={3} />}
      {runs && !runs.length && <p class="quiet">It has had no runs.</p>}
      {runs && runs.length > 0 && (
        <>
          <div class="scroll">
            <RunTable runs={runs} me={me} hasAgent={false} />
          </div>
          <p>
            <a class="small" href={withQuery(pageUrl.runs(), { agent })}>
              All its runs
            </a>
          </p>
        </>
      )}
    </section>
  );
}
