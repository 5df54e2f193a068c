/** The tools of an agent: what they take and do, who approves them; its skills and its versions. */
import { readAgent, type Agent, type AgentSkill, type AgentTool } from "../../core/api/agents";
import { useRead } from "../../core/read";
import { ago, fullTime, useNow } from "../../core/time";
import { Failure, Skeleton } from "../States";
import { SafeText } from "../Text";
import { versionOf } from "../tickets/TicketCard";

export function AgentTools({ agent }: { agent: Agent }) {
  const { value: detail, error, retry } = useRead((signal) => readAgent(agent.id, signal), agent.id);
  const now = useNow(30);
  return (
    <>
      <section>
        <h2>Tools</h2>
        {error ? <Failure error={error} onRetry={retry} /> : null}
        {!detail && !error && <Skeleton rows={3} />}
        {detail && !detail.tools.length && <p class="quiet">It has no tools.</p>}
        {detail && detail.tools.length > 0 && (
          <div class="scroll" tabIndex={0} role="region" aria-label="Table of tools">
            <table class="table tools-table">
              <thead>
                <tr>
                  <th scope="col">Tool</th>
                  <th scope="col">Takes</th>
                  <th scope="col">Effect</th>
                  <th scope="col">Approval</th>
                </tr>
              </thead>
              <tbody>
                {detail.tools.map((tool) => (
                  <Tool key={tool.name} tool={tool} hasRules={detail.plugins.includes("permission")} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </section>
      {detail && detail.skills.length > 0 && <Skills skills={detail.skills} />}
      {detail && detail.versions.length > 1 && (
        <details>
          <summary class="small quiet">{detail.versions.length} versions</summary>
          <ul class="small">
            {detail.versions.map(({ version, at, isCurrent }) => (
              <li key={version}>
                <code>{versionOf(version)}</code> <span class="quiet" title={fullTime(at)}>{ago(at, now)}</span> {isCurrent && <span class="badge ok">current</span>}
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function Skills({ skills }: { skills: readonly AgentSkill[] }) {
  return (
    <section aria-label="Skills">
      <h2>Skills</h2>
      <p class="small quiet">Instructions that the agent loads when a task needs them.</p>
      <ul class="stack">
        {skills.map(({ name, description, allowedTools }) => (
          <li key={name}>
            <b>{name}</b> <span class="quiet"><SafeText text={description} /></span>
            {allowedTools && (
              <p class="small quiet">
                While it is in use, the agent may call only {allowedTools.map((tool, at) => [at > 0 && ", ", <code key={tool}>{tool}</code>])}.
              </p>
            )}
          </li>
        ))}
      </ul>
    </section>
  );
}

const EFFECTS: Record<AgentTool["effect"], [words: string, tone: string]> = {
  read: ["only reads", "ok"],
  idempotent: ["idempotent", "busy"],
  unsafe: ["unsafe", "warn"],
};

function Tool({ tool, hasRules }: { tool: AgentTool; hasRules: boolean }) {
  const [words, tone] = EFFECTS[tool.effect];
  return (
    <tr>
      <td>
        <code>{tool.name}</code>
        {tool.isBackground && <span class="badge">background</span>}
        <p class="small quiet">
          <SafeText text={tool.description.split("\n")[0] ?? ""} />
        </p>
      </td>
      <td class="small mono parameters">{tool.parameters.map((one) => <div key={one}>{one}</div>)}</td>
      <td>
        <span class={`badge ${tone}`}>{words}</span>
      </td>
      <td class="small">{approvalOf(tool, hasRules)}</td>
    </tr>
  );
}

function approvalOf({ needsPerson, approvers }: AgentTool, hasRules: boolean) {
  if (!needsPerson && !approvers) return <span class="quiet">{hasRules ? "as rules say" : "none"}</span>;
  const who = approvers?.scope ?? "any decider";
  const count = (approvers?.quorum ?? 1) > 1 ? `${approvers!.quorum} of ` : "";
  return `${count}${who}${approvers?.notStarter ? ", not the starter" : ""}`;
}
