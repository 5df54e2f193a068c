/** One run: why it stands still, what it said and did and when, and who decided what. */
import { useState } from "preact/hooks";
import type { Me } from "../core/api/session";
import type { Run as RunRecord } from "../core/api/runs";
import { useAnnounced } from "../core/drawing/announce";
import { shortId } from "../core/ids";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { useRun } from "../core/run";
import { useTicketInAddress } from "../core/runs/ticketEvent";
import { idInPath, queryOf, setQuery } from "../core/url";
import type { RunState } from "../events/reduceRun";
import { Explain, isWorthExplaining } from "../parts/run/Explain";
import { RunActions } from "../parts/run/RunActions";
import { RunHead } from "../parts/run/RunHead";
import { RunPanel } from "../parts/run/RunPanel";
import { Shell } from "../parts/Shell";
import { Failure, Skeleton } from "../parts/States";
import { Tabs, type Tab } from "../parts/Tabs";
import { lookOf } from "../parts/run/RunStatus";

const TABS: readonly Tab[] = [
  { id: "conversation", name: "Conversation" },
  { id: "timeline", name: "Timeline" },
  { id: "tree", name: "Tree" },
  { id: "events", name: "Events" },
  { id: "audit", name: "Audit" },
  { id: "artifacts", name: "Artifacts" },
  { id: "state", name: "State" },
];

function Run() {
  const id = idInPath() ?? "";
  const { me, error: meError } = useMe();
  const { run, state, held, live, error, reload } = useRun(id, me);
  const problem = meError ?? error;
  useTitle(run ? `${lookOf(run)[1]}: run ${shortId(id)}` : `Run ${shortId(id)}`);
  useReady((run !== null && state !== null) || problem !== null);
  return (
    <Shell page="Runs" me={me} live={problem ? undefined : live} held={held}>
      <div class="page stack">
        {problem ? <Failure error={problem} onRetry={reload} /> : null}
        {!problem && !(run && state) && <Skeleton rows={8} />}
        {run && state && <RunView run={run} state={state} me={me} reload={reload} />}
      </div>
    </Shell>
  );
}

interface RunViewProps {
  run: RunRecord;
  state: RunState;
  me: Me | null;
  reload(): void;
}

function RunView({ run, state, me, reload }: RunViewProps) {
  const [tab, setTab] = useState(() => TABS.find(({ id }) => id === queryOf()["tab"])?.id ?? TABS[0]!.id);
  const [at, setAt] = useState<number | null>(() => Number(queryOf()["at"]) || null);
  const choose = (id: string) => {
    setTab(id);
    setQuery({ tab: id === TABS[0]!.id ? null : id });
  };
  const replay = (seq: number | null) => {
    setAt(seq);
    setQuery({ at: seq === null ? null : String(seq) });
  };
  const openTickets = state.tickets.filter(({ status, kind }) => status === "open" && kind !== "child" && kind !== "event");
  const announced = useAnnounced(lookOf(run)[1]);
  useTicketInAddress(run.id, state.tickets, replay);
  return (
    <>
      <RunHead run={run}>
        <RunActions run={run} messages={state.messages} me={me} onDone={reload} />
      </RunHead>
      {isWorthExplaining(run) && <Explain run={run} version={state.recordVersion} me={me} tickets={tab === "conversation" ? [] : openTickets} />}
      <p class="unseen" role="status">
        {announced}
      </p>
      <Tabs tabs={TABS} chosen={tab} onChoose={choose} />
      <div id={`panel-${tab}`} role="tabpanel" aria-labelledby={`tab-${tab}`} class="stack">
        <RunPanel tab={tab} run={run} state={state} me={me} at={at} onReplay={replay} />
      </div>
    </>
  );
}

draw(Run);
