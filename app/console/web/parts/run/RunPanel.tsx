/** The chosen tab of a run, as it is now or as it was at an event. */
import { useMemo } from "preact/hooks";
import type { Run } from "../../core/api/runs";
import type { Me } from "../../core/api/session";
import { NO_DECISIONS, useDecisions } from "../../core/runs/decisions";
import { useEvents } from "../../core/runs/events";
import type { RunState as State } from "../../events/reduceRun";
import { agentStateAt, stateAt } from "../../events/replay";
import { Empty, Failure, Skeleton } from "../States";
import { Conversation } from "./Conversation";
import { Replay } from "./Replay";
import { RunAudit } from "./RunAudit";
import { RunComposer } from "./RunComposer";
import { RunArtifacts, RunState } from "./RunData";
import { RunEvents } from "./RunEvents";
import { RunTimeline } from "./RunTimeline";
import { RunTree } from "./RunTree";

interface RunPanelProps {
  tab: string;
  run: Run;
  state: State;
  me: Me | null;
  /** The event that is replayed; null for now. */
  at: number | null;
  onReplay(seq: number | null): void;
}

const REPLAYED = new Set(["conversation", "timeline", "events", "state"]);

export function RunPanel({ tab, run, state, me, at, onReplay }: RunPanelProps) {
  const isWanted = tab === "timeline" || tab === "events" || at !== null;
  const { events, isLoaded, error, isRemoved } = useEvents(run.id, { lastSeq: state.lastSeq, isWanted, isWhole: at !== null });
  const isReplay = at !== null && REPLAYED.has(tab);
  const past = useMemo(() => (isReplay ? stateAt(state, run.id, events, at) : null), [isReplay, state.messages, events, at]);
  const settled = state.tickets.filter(({ status }) => status !== "open").length;
  const hasCalls = tab === "conversation" && !isReplay && state.messages.some(({ calls }) => calls.length > 0);
  const decisions = useDecisions(run.id, hasCalls, settled);
  if (isWanted && isRemoved) return <Removed isReplay={at !== null} onBack={() => onReplay(null)} />;
  if (isWanted && error) return <Failure error={error} />;
  if (isWanted && !isLoaded && (isReplay || !at)) return <Skeleton rows={6} />;
  const version = state.recordVersion;
  return (
    <>
      {isReplay ? (
        <Replay events={events} at={at} onChange={onReplay} />
      ) : (
        tab === "conversation" && run.status === "done" && (
          <p>
            <button class="link small" onClick={() => onReplay(1)}>
              Replay from the first event
            </button>
          </p>
        )
      )}
      {tab === "conversation" && <Conversation state={past ?? state} me={me} runId={run.id} decisions={past ? NO_DECISIONS : decisions} />}
      {tab === "conversation" && !past && <RunComposer run={run} me={me} />}
      {tab === "timeline" && (
        <RunTimeline events={isReplay ? events.filter(({ seq }) => seq <= at) : events} runId={run.id} version={version} isReplay={isReplay} />
      )}
      {tab === "tree" && <RunTree run={run} version={version} />}
      {tab === "events" && <RunEvents runId={run.id} events={events} at={at} onReplay={onReplay} />}
      {tab === "audit" && <RunAudit runId={run.id} version={version} />}
      {tab === "artifacts" && <RunArtifacts runId={run.id} version={version} />}
      {tab === "state" && (
        <RunState runId={run.id} version={version} replayed={isReplay ? { state: agentStateAt(events, at) } : null} />
      )}
    </>
  );
}

function Removed({ isReplay, onBack }: { isReplay: boolean; onBack(): void }) {
  return (
    <Empty title="The events of this run are no longer kept">
      <p>Its messages and its audit are.</p>
      {isReplay && (
        <p>
          <button onClick={onBack}>Show the run as it is now</button>
        </p>
      )}
    </Empty>
  );
}
