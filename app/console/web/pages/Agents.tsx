/** The agents of the server, and beside them the chosen one. */
import { listAgents, type Agent } from "../core/api/agents";
import { ApiError } from "../core/api/client";
import { useKeys } from "../core/keys";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { useRead } from "../core/read";
import { idInPath, pageUrl } from "../core/url";
import { AgentCard } from "../parts/agents/AgentCard";
import { Icon } from "../parts/Icon";
import { Shell } from "../parts/Shell";
import { Empty, Failure, Skeleton } from "../parts/States";
import { SafeText } from "../parts/Text";

const EXAMPLE = `[models.fast]
provider = "anthropic"
model = "claude-haiku-4-5"

[agents.helper]
model = "fast"
instructions = "You help."`;

function Agents() {
  const id = idInPath();
  const { me, error: meError } = useMe();
  const { value: agents, error, retry } = useRead(listAgents, "agents");
  const problem = meError ?? error;
  const agent = agents?.find((one) => one.id === id) ?? null;
  useTitle(id ?? "Agents");
  useReady(agents !== undefined || problem !== null);
  const go = (step: number) => {
    const at = agents?.findIndex((one) => one.id === id) ?? -1;
    const next = agents?.[at < 0 ? 0 : at + step];
    if (next) location.assign(pageUrl.agent(next.id));
  };
  useKeys({ j: () => go(1), k: () => go(-1) });
  return (
    <Shell page="Agents" me={me}>
      <div class={`inbox agents ${id ? "with-card" : ""}`}>
        <section class="list" aria-label="Agents">
          <h1 class="unseen">Agents</h1>
          {problem ? <Failure error={problem} onRetry={retry} /> : <Rows agents={agents} chosen={id} />}
        </section>
        <div class="card-place">
          {id && (
            <p class="only-narrow">
              <a href={pageUrl.agents()} class="row">
                <Icon name="back" /> Agents
              </a>
            </p>
          )}
          {id && problem ? <Failure error={problem} onRetry={retry} /> : null}
          {!id && <Empty title={agents?.length ? "Choose an agent" : ""} />}
          {id && agents && !agent && <Failure error={new ApiError(404, "agent_not_found", `This server has no agent ${id}.`, "")} />}
          {agent && <AgentCard agent={agent} me={me} />}
        </div>
      </div>
    </Shell>
  );
}

function worksWith({ tools, delegates }: Agent): string {
  if (!tools.length && delegates.length) return `Gives work to ${delegates.join(", ")}`;
  return tools.length === 0 ? "No tools" : tools.length === 1 ? "1 tool" : `${tools.length} tools`;
}

function Rows({ agents, chosen }: { agents: Agent[] | undefined; chosen: string | null }) {
  if (!agents) return <Skeleton />;
  if (!agents.length) {
    return (
      <Empty title="No agents yet">
        <p>Write them into an agents file:</p>
        <pre class="json">{EXAMPLE}</pre>
      </Empty>
    );
  }
  return (
    <div class="rows">
      {agents.map(({ id, description, model, approval }, at) => (
        <a key={id} class="thread-row" href={pageUrl.agent(id)} {...(id === chosen ? { "aria-current": "page" as const } : {})}>
          <span class="name cut">{id}</span>
          <span class="quiet small end">{model}</span>
          <span class="quiet small cut">
            <SafeText text={description || worksWith(agents[at]!)} />
          </span>
          {approval.length > 0 && <span class="badge wait">{approval.length} with approval</span>}
        </a>
      ))}
    </div>
  );
}

draw(Agents);
