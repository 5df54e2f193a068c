/** A form that starts a run, and leads to it. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { listAgents, type Agent } from "../core/api/agents";
import { startRun } from "../core/api/start";
import { newId } from "../core/ids";
import { useKeys } from "../core/keys";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { pageUrl, queryOf } from "../core/url";
import { Shell } from "../parts/Shell";
import { Failure, Skeleton } from "../parts/States";

const EXAMPLES: Record<string, string[]> = {
  demo: ["refund 80 for order A-7", "delete /tmp/notes.md", "Which files are there?"],
};

function Start() {
  const { me, error: meError } = useMe();
  const [agents, setAgents] = useState<Agent[] | null>(null);
  const [error, setError] = useState<unknown>(null);
  useTitle("Start a run");
  useReady(agents !== null || error !== null);
  useEffect(() => {
    listAgents().then(setAgents, setError);
  }, []);
  const problem = meError ?? error;
  return (
    <Shell page="Start a run" me={me}>
      <div class="page narrow stack">
        <h1>Start a run</h1>
        {problem ? <Failure error={problem} /> : null}
        {!agents && !problem && <Skeleton rows={3} />}
        {agents && <StartForm agents={agents} maySend={me?.may("runs:write") ?? true} />}
      </div>
    </Shell>
  );
}

function StartForm({ agents, maySend }: { agents: Agent[]; maySend: boolean }) {
  const [agent, setAgent] = useState(queryOf()["agent"] ?? agents[0]?.id ?? "");
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
      location.assign(pageUrl.run(await startRun(agent, text, runId, threadKey)));
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
          autofocus
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
        {!maySend && <span class="quiet">Your key lacks the scope runs:write.</span>}
      </p>
    </form>
  );
}

draw(Start);
