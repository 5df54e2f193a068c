/** All runs: found by filters in the address, and watched without moving rows. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { listAgents, type Agent } from "../core/api/agents";
import type { ListedRun } from "../core/api/runLists";
import type { Me } from "../core/api/session";
import { useKeys } from "../core/keys";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { addressOf, isFiltered, runFiltersOf, runQueryOf, type RunFilters as Filters } from "../core/runs/filters";
import { useRunList, type RunList } from "../core/runs/list";
import { pageUrl, queryOf, setQuery } from "../core/url";
import { CancelDialog, PauseDialog, ResumeDialog, RetryDialog, type RunAction } from "../parts/run/RunActions";
import { RunFilters } from "../parts/run/RunFilters";
import { StartForm } from "../parts/run/StartForm";
import { RunTable } from "../parts/run/RunTable";
import { Shell } from "../parts/Shell";
import { Empty, Failure, Skeleton } from "../parts/States";

function Runs() {
  const { me, error: meError } = useMe();
  const [filters, setFilters] = useState(() => runFiltersOf(queryOf()));
  const list = useRunList(useMemo(() => runQueryOf(filters), [filters]), me);
  const [agents, setAgents] = useState<Agent[]>([]);
  const [asked, ask] = useState<{ action: RunAction; run: ListedRun } | null>(null);
  const chosen = useRowKeys(list);
  const problem = meError ?? list.error;
  useTitle("Runs");
  useReady(list.state.isLoaded || problem !== null);
  useEffect(() => {
    // Without the names, the filter still has the agent of the address.
    listAgents().then(setAgents, () => undefined);
  }, []);
  const change = (changed: Filters) => {
    setFilters(changed);
    setQuery(addressOf(changed));
  };
  return (
    <Shell page="Runs" me={me} live={problem ? "waiting" : list.state.isLoaded ? "live" : "connecting"} held={list.held}>
      <h1 class="unseen">Runs</h1>
      <RunFilters filters={filters} agents={agents.map(({ id }) => id)} onChange={change} />
      {problem ? <Failure error={problem} onRetry={list.reload} /> : null}
      {!list.state.isLoaded && !problem && <Skeleton rows={12} />}
      {list.state.newer.length > 0 && (
        <button class="newer" onClick={list.showNewer}>
          {list.state.newer.length} new
        </button>
      )}
      {list.state.isLoaded && !list.state.runs.length && <NoRuns isFiltered={isFiltered(filters)} agents={agents} me={me} />}
      {list.state.runs.length > 0 && (
        <div class={list.isStale ? "stale" : ""}>
          <RunTable
            runs={list.state.runs}
            left={list.state.left}
            me={me}
            chosen={chosen}
            onAction={(action, run) => ask({ action, run })}
          />
        </div>
      )}
      {list.state.next && (
        <button class="newer" onClick={list.loadMore}>
          More
        </button>
      )}
      {asked?.action === "cancel" && (
        <CancelDialog run={asked.run} onDone={() => list.refresh(asked.run.id)} onClose={() => ask(null)} />
      )}
      {asked?.action === "pause" && <PauseDialog run={asked.run} onDone={() => list.refresh(asked.run.id)} onClose={() => ask(null)} />}
      {asked?.action === "resume" && <ResumeDialog run={asked.run} onDone={() => list.refresh(asked.run.id)} onClose={() => ask(null)} />}
      {asked?.action === "retry" && <RetryDialog run={asked.run} onClose={() => ask(null)} />}
    </Shell>
  );
}

function NoRuns({ isFiltered, agents, me }: { isFiltered: boolean; agents: readonly Agent[]; me: Me | null }) {
  if (isFiltered) return <Empty title="No run fits these filters" />;
  return (
    <>
      <Empty title="No runs yet" />
      {agents.length > 0 && (
        <div class="page narrow">
          <StartForm agents={agents} maySend={me?.may("runs:write") ?? true} />
        </div>
      )}
    </>
  );
}

/** `j` and `k` choose a row, `Enter` opens it. */
function useRowKeys(list: RunList): string | null {
  const [chosen, choose] = useState<string | null>(null);
  const { runs, newer } = list.state;
  const go = (step: number) => {
    const at = runs.findIndex(({ id }) => id === chosen);
    const next = runs[at < 0 ? 0 : Math.min(runs.length - 1, Math.max(0, at + step))];
    if (!next) return;
    choose(next.id);
    document.querySelector(`[data-run="${next.id}"]`)?.scrollIntoView({ block: "nearest" });
  };
  useKeys({
    j: () => go(1),
    k: () => go(-1),
    "/": () => document.querySelector<HTMLElement>("[data-filter]")?.focus(),
    ...(chosen ? { Enter: () => location.assign(pageUrl.run(chosen)) } : {}),
    ...(newer.length ? { ".": list.showNewer } : {}),
  });
  return chosen;
}

draw(Runs);
