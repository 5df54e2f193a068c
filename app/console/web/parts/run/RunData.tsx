/** The state and the artifacts of a run, as JSON. */
import { useState } from "preact/hooks";
import { listArtifacts, readAgentState, type Artifact } from "../../core/api/artifacts";
import { useRead } from "../../core/read";
import { JsonText } from "../JsonView";
import { Empty, Failure, Skeleton } from "../States";
import { SafeText } from "../Text";

export function RunState({ runId, version, replayed }: { runId: string; version: number; replayed: { state: unknown } | null }) {
  const { value, error, retry } = useRead((signal) => readAgentState(runId, signal), `${runId}:${version}`);
  if (error) return <Failure error={error} onRetry={retry} />;
  const state = replayed ? replayed.state : value;
  if (state === undefined) return <Skeleton rows={3} />;
  return state === null ? <Empty title="The run keeps no state" /> : <JsonText value={state} />;
}

export function RunArtifacts({ runId, version }: { runId: string; version: number }) {
  const { value, error, retry } = useRead((signal) => listArtifacts(runId, null, signal), `${runId}:${version}`);
  const [more, setMore] = useState<{ items: Artifact[]; next: string | null } | null>(null);
  if (error) return <Failure error={error} onRetry={retry} />;
  if (!value) return <Skeleton rows={3} />;
  const items = [...value.items, ...(more?.items ?? [])];
  const next = more ? more.next : value.next;
  if (!items.length) return <Empty title="The run has made no artifacts" />;
  const load = async () => {
    const page = await listArtifacts(runId, next);
    setMore({ items: [...(more?.items ?? []), ...page.items], next: page.next });
  };
  return (
    <ul class="stack">
      {items.map(({ id, name, mediaType, content }, at) => (
        <li key={id ?? at} class="stack">
          <h3 class="row">
            <SafeText text={name ?? "Without a name"} /> <span class="quiet small">{mediaType}</span>
          </h3>
          <JsonText value={content} />
        </li>
      ))}
      {next && (
        <li>
          <button onClick={() => void load()}>More</button>
        </li>
      )}
    </ul>
  );
}
