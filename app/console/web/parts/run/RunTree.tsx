/** The run's tree: the run that began it, and all runs below. */
import { listRuns, type ListedRun } from "../../core/api/runLists";
import type { Run } from "../../core/api/runs";
import { shortId } from "../../core/ids";
import { useRead } from "../../core/read";
import { duration } from "../../core/time";
import { pageUrl } from "../../core/url";
import { treeOf, type TreeRow } from "../../events/tree";
import { Empty, Failure, Skeleton } from "../States";
import { RunStatus } from "./RunStatus";

const MOST_RUNS = 1000;
const PAGE_SIZE = 200;
const NUMBER = new Intl.NumberFormat("en");

export function RunTree({ run, version }: { run: Run; version: number }) {
  const { value: rows, error, retry } = useRead(async (signal) => treeOf(await readTree(run.rootId, signal)), `${run.rootId}:${version}`);
  if (error) return <Failure error={error} onRetry={retry} />;
  if (!rows) return <Skeleton rows={3} />;
  if (rows.length === 1) return <Empty title="This run has started no other runs" />;
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Tree of runs">
      <table class="table tree-table">
        <thead>
          <tr>
            <th scope="col">Run</th>
            <th scope="col">Status</th>
            <th scope="col" class="right">Tickets</th>
            <th scope="col" class="right">Tokens</th>
            <th scope="col" class="right">With those below</th>
            <th scope="col" class="right">Executed</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Row key={row.run.id} row={row} isHere={row.run.id === run.id} />
          ))}
        </tbody>
      </table>
      {rows.length >= MOST_RUNS && <p class="quiet small">The first {MOST_RUNS} runs.</p>}
    </div>
  );
}

async function readTree(root: string, signal: AbortSignal): Promise<ListedRun[]> {
  const runs: ListedRun[] = [];
  let cursor: string | null = null;
  do {
    const page = await listRuns({ root, order: "asc", limit: PAGE_SIZE, ...(cursor ? { cursor } : {}) }, signal);
    runs.push(...page.items);
    cursor = page.next;
  } while (cursor && runs.length < MOST_RUNS);
  return runs;
}

function Row({ row: { run, depth, tokens, tokensWithBelow, ticketsWithBelow, isLast }, isHere }: { row: TreeRow; isHere: boolean }) {
  return (
    <tr {...(isHere ? { "aria-current": true as const } : {})}>
      <td class="node" style={{ paddingLeft: `${12 + depth * 22}px` }}>
        {depth > 0 && <span class="quiet" aria-hidden="true">{isLast ? "└ " : "├ "}</span>}
        {isHere ? <b>{run.agentId}</b> : run.agentId}{" "}
        <a class="mono small" href={pageUrl.run(run.id)}>
          {shortId(run.id)}
        </a>
        {depth > 0 && <span class="unseen">, level {depth + 1}</span>}
      </td>
      <td>
        <RunStatus run={run} />
      </td>
      <td class="right number" data-name="Tickets">
        {run.openTickets > 0 && <a href={pageUrl.ticketsOf(run.id)}>{run.openTickets}</a>}
        {ticketsWithBelow > run.openTickets && <span class="quiet"> {ticketsWithBelow - run.openTickets} below</span>}
      </td>
      <td class="right number" data-name="Tokens">{NUMBER.format(tokens)}</td>
      <td class="right number quiet" data-name="With those below">{tokensWithBelow === tokens ? "" : NUMBER.format(tokensWithBelow)}</td>
      <td class="right number" data-name="Executed">{duration(run.executedSeconds)}</td>
    </tr>
  );
}
