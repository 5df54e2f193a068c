/** Runs as a table, which becomes a list of cards on a narrow screen. */
import type { ListedRun } from "../../core/api/runLists";
import type { Me } from "../../core/api/session";
import { shortId } from "../../core/ids";
import { memo } from "../../core/memo";
import { dollars } from "../../core/words/money";
import { ago, duration, fullTime, useNow } from "../../core/time";
import { pageUrl } from "../../core/url";
import { Menu } from "../Menu";
import { SafeText } from "../Text";
import { offeredActions, type RunAction } from "./RunActions";
import { RunStatus } from "./RunStatus";

interface RunTableProps {
  runs: readonly ListedRun[];
  left?: ReadonlySet<string>;
  me: Me | null;
  chosen?: string | null;
  /** Whether the runs may be of several agents. */
  hasAgent?: boolean;
  /** Without it, rows have no menu. */
  onAction?: (action: RunAction, run: ListedRun) => void;
}

const NUMBER = new Intl.NumberFormat("en");

export function RunTable({ runs, left, me, chosen, hasAgent = true, onAction }: RunTableProps) {
  const now = useNow();
  const hasCost = runs.some(({ cost }) => cost > 0);
  return (
    <table class="table runs">
      <thead>
        <tr>
          <th scope="col">Status</th>
          <th scope="col">Run</th>
          {hasAgent && <th scope="col">Agent</th>}
          <th scope="col" class="asked">Asked</th>
          <th scope="col" class="wide">Started by</th>
          <th scope="col" class="wide right">Steps</th>
          <th scope="col" class="right">Tokens</th>
          {hasCost && <th scope="col" class="wide right">Cost</th>}
          <th scope="col" class="right">Duration</th>
          <th scope="col" class="right">Started</th>
          {onAction && (
            <th scope="col">
              <span class="unseen">Actions</span>
            </th>
          )}
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <Row
            key={run.id}
            run={run}
            me={me}
            // A run that is done has a fixed duration, and its age changes slowly.
            minute={Math.floor(now.getTime() / (run.status === "done" ? 60_000 : 1_000))}
            hasLeft={left?.has(run.id) ?? false}
            isChosen={run.id === chosen}
            hasAgent={hasAgent}
            hasCost={hasCost}
            onAction={onAction}
          />
        ))}
      </tbody>
    </table>
  );
}

interface RowProps {
  run: ListedRun;
  me: Me | null;
  minute: number;
  hasLeft: boolean;
  isChosen: boolean;
  hasAgent: boolean;
  hasCost: boolean;
  onAction: RunTableProps["onAction"];
}

const Row = memo(({ run, me, hasLeft, isChosen, hasAgent, hasCost, onAction }: RowProps) => {
  const now = new Date();
  const seconds = ((run.finishedAt ?? now).getTime() - run.createdAt.getTime()) / 1000;
  const items = onAction
    ? offeredActions(run, me).map(({ action, name, refusal }) => ({ name, refusal, onChoose: () => onAction(action, run) }))
    : [];
  return (
    <tr class={hasLeft ? "has-left" : ""} {...(isChosen ? { "aria-current": true as const } : {})} data-run={run.id}>
      <td class="state">
        <RunStatus run={run} />
        {hasLeft && <span class="badge quiet">no longer fits</span>}
      </td>
      <td class="id">
        <a class="mono" href={pageUrl.run(run.id)}>
          {shortId(run.id)}
        </a>
        {run.parentId && <span class="quiet tiny">child</span>}
        {run.retryOf && <span class="quiet tiny">retry</span>}
        {run.children > 0 && (
          <a class="tiny" href={pageUrl.run(run.id, { tab: "tree" })}>
            {NUMBER.format(run.children)} below
          </a>
        )}
      </td>
      {hasAgent && <td class="agent">{run.agentId}</td>}
      <td class="asked quiet cut" title={run.preview}>
        <SafeText text={run.preview} />
      </td>
      <td class="wide quiet">
        <SafeText text={run.startedBy} />
      </td>
      <td class="wide right number">{run.steps}</td>
      <td class="tokens right number">
        {NUMBER.format(run.inputTokens + run.outputTokens)}
        <span class="only-card"> tokens</span>
      </td>
      {hasCost && <td class="wide right number">{run.cost > 0 ? dollars(run.cost) : ""}</td>}
      <td class="long right number">{duration(Math.max(0, seconds))}</td>
      <td class="started right quiet number">
        <time dateTime={run.createdAt.toISOString()} title={fullTime(run.createdAt)}>
          {ago(run.createdAt, now)}
        </time>
      </td>
      {onAction && (
        <td class="actions">
          <Menu label={`Actions on run ${shortId(run.id)}`} items={items} />
        </td>
      )}
    </tr>
  );
});
