/** A form that starts a run, and leads to it. */
import { useMemo, useState } from "preact/hooks";
import type { Agent } from "../../core/api/agents";
import { startRequest, startRun } from "../../core/api/start";
import { newId } from "../../core/ids";
import { useKeys } from "../../core/keys";
import { pageUrl } from "../../core/url";
import { CopyAsCurl } from "../CopyAsCurl";
import { Failure } from "../States";

const EXAMPLES: Record<string, string[]> = {
  demo: ["refund 80 for order A-7", "delete /tmp/notes.md", "Which files are there?"],
};

interface StartFormProps {
  agents: readonly Agent[];
  /** The agent that is chosen first. */
  first?: string | undefined;
  maySend: boolean;
  /** Whether the cursor is in the message at first. Then single letters are no keys of the page. */
  hasFocus?: boolean;
}

export function StartForm({ agents, first, maySend, hasFocus = false }: StartFormProps) {
  const [agent, setAgent] = useState(first ?? agents[0]?.id ?? "");
  const [text, setText] = useState("");
  const [threadKey, setThreadKey] = useState("");
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  // A repeated request has the same id, so it starts no second run.
  const runId = useMemo(newId, [agent, text, threadKey]);
  const chosen = agents.find(({ id }) => id === agent);
  const start = async () => {
    if (!text.trim() || isBusy) return;
    setBusy(true);
    setError(null);
    try {
      location.assign(pageUrl.run((await startRun(startRequest(agent, text, { runId, threadKey }))).id));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  useKeys({ "Ctrl+Enter": () => void start() });
  const submit = (event: Event) => {
    event.preventDefault();
    void start();
  };
  return (
    <form class="stack" onSubmit={submit}>
      <label class="field">
        Agent
        <select value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
          {agents.map(({ id }) => (
            <option key={id}>{id}</option>
          ))}
        </select>
        {chosen?.description && <span class="quiet small">{chosen.description}</span>}
      </label>
      <label class="field">
        Message
        <textarea
          rows={5}
          autofocus={hasFocus}
          required
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </label>
      {EXAMPLES[agent] && (
        <p class="row small">
          <span class="quiet">Try</span>
          {EXAMPLES[agent].map((example) => (
            <button key={example} type="button" class="chip" onClick={() => setText(example)}>
              {example}
            </button>
          ))}
        </p>
      )}
      <label class="field">
        <span>
          Thread <span class="quiet">(optional: your own name for the conversation, such as customer-17)</span>
        </span>
        <input maxLength={200} value={threadKey} onInput={(event) => setThreadKey(event.currentTarget.value)} />
      </label>
      {error ? <Failure error={error} /> : null}
      <p class="row">
        <button class="primary" disabled={isBusy || !maySend}>
          Start <kbd>Ctrl+Enter</kbd>
        </button>
        <span class="grow" />
        {text.trim() && <CopyAsCurl request={() => startRequest(agent, text, { threadKey })} />}
        {!maySend && <span class="quiet">Your key lacks the scope runs:write.</span>}
      </p>
    </form>
  );
}
