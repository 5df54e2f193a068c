/** Begins a conversation: choose an agent, and write. */
import { useState } from "preact/hooks";
import { listAgents } from "../../core/api/agents";
import type { Me } from "../../core/api/session";
import { useRead } from "../../core/read";
import { TryIt } from "../agents/TryIt";
import { Failure } from "../States";

export function NewThread({ me }: { me: Me | null }) {
  const { value: agents, error, retry } = useRead(listAgents, "agents");
  const [chosen, choose] = useState("");
  const agent = chosen || agents?.[0]?.id;
  if (error) return <Failure error={error} onRetry={retry} />;
  if (!agents || !agent) return null;
  return (
    <section class="new-thread" aria-label="New conversation">
      <h2>New conversation</h2>
      <TryIt agent={agent} me={me} label={`Write to ${agent}`}>
        <select aria-label="Agent" value={agent} onChange={(event) => choose(event.currentTarget.value)}>
          {agents.map(({ id }) => (
            <option key={id}>{id}</option>
          ))}
        </select>
      </TryIt>
    </section>
  );
}
