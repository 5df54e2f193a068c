/** Says something on a thread: to which agent, and when it is read. */
import { useEffect, useState } from "preact/hooks";
import { listAgents, type Agent } from "../../core/api/agents";
import { sendInput, threadMessageRequest, type ActionRequest, type InputMode } from "../../core/api/runActions";
import type { Run } from "../../core/api/runs";
import type { Me } from "../../core/api/session";
import { Composer } from "../Composer";

const MODES: readonly [InputMode, string][] = [
  ["queue", "after the open run"],
  ["steer", "before the next step of the open run"],
  ["interrupt_then_queue", "now: the open run is cancelled"],
];

interface ThreadComposerProps {
  threadId: string;
  run: Run | null;
  me: Me | null;
  onSent(): void;
}

export function ThreadComposer({ threadId, run, me, onSent }: ThreadComposerProps) {
  const [agents, setAgents] = useState<Agent[]>([]);
  const [agent, setAgent] = useState("");
  const [wanted, setMode] = useState<InputMode>("queue");
  useEffect(() => {
    // Without the names, the last agent of the thread answers.
    listAgents().then(setAgents, () => undefined);
  }, []);
  const mode = run ? wanted : "queue";
  const send = async (request: ActionRequest, key: string) => {
    await sendInput(request, key);
    onSent();
  };
  return (
    <Composer
      label="Write a message"
      refusal={me && !me.may("runs:write") ? "Your key lacks the scope runs:write." : null}
      variant={`${agent}:${mode}`}
      request={(text) => threadMessageRequest(threadId, mode === "steer" ? "" : agent, text, mode)}
      send={send}
    >
      {mode !== "steer" && (
        <select aria-label="Agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
          <option value="">Last agent</option>
          {agents.map(({ id }) => (
            <option key={id}>{id}</option>
          ))}
        </select>
      )}
      {run && (
        <select aria-label="When it is read" value={mode} onChange={(event) => setMode(event.currentTarget.value as InputMode)}>
          {MODES.map(([name, text]) => (
            <option key={name} value={name}>
              Read {text}
            </option>
          ))}
        </select>
      )}
    </Composer>
  );
}
