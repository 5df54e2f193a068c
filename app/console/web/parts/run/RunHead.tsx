/** The head of a run: what it is, how it stands, and what it has used. */
import type { ComponentChildren } from "preact";
import type { Meter, Run } from "../../core/api/runs";
import { shortId } from "../../core/ids";
import { dollars } from "../../core/words/money";
import { ago, duration, fullTime, useNow } from "../../core/time";
import { pageUrl } from "../../core/url";
import { RunStatus } from "./RunStatus";
import { SafeText } from "../Text";
import { versionOf } from "../tickets/TicketCard";

export function RunHead({ run, children }: { run: Run; children?: ComponentChildren }) {
  const now = useNow(run.status === "running" ? 1 : 10);
  const total = ((run.finishedAt ?? now).getTime() - run.createdAt.getTime()) / 1000;
  const waited = total - run.executedSeconds;
  return (
    <header class="run-head">
      {children && <div class="run-actions">{children}</div>}
      <h1>
        Run <span class="mono">{shortId(run.id)}</span> <RunStatus run={run} />
        {run.isCancelling && <span class="badge warn">is being cancelled</span>}
        {run.isPaused && run.waitingReason !== "manual_pause" && <span class="badge warn">{run.status === "running" ? "pauses after this step" : "paused"}</span>}
        {run.rolledBackBy && <span class="badge">rolled back</span>}
      </h1>
      <p class="row small quiet">
        <span>
          {run.agentId}
          <span class="mono tiny">@{versionOf(run.agentVersion)}</span>
        </span>
        <span>
          started by <SafeText text={run.startedBy} />
        </span>
        <time dateTime={run.createdAt.toISOString()} title={fullTime(run.createdAt)}>
          {ago(run.createdAt, now)}
        </time>
        <a href={pageUrl.thread(run.threadId)}>thread {shortId(run.threadId)}</a>
        <span>
          executed {duration(run.executedSeconds)}
          {waited > 1 && `, waited ${duration(waited)}`}
        </span>
        {run.meters.map((meter) => (
          <MeterView key={meter.name} meter={meter} />
        ))}
        {run.cost > 0 && <span class="number">{dollars(run.cost)}</span>}
        {run.parentId && <a href={pageUrl.run(run.parentId)}>parent run</a>}
        {run.parentId && run.parentId !== run.rootId && <a href={pageUrl.run(run.rootId)}>root run</a>}
        {run.retryOf && <a href={pageUrl.run(run.retryOf)}>retry of run {shortId(run.retryOf)}</a>}
      </p>
      {run.termination && run.outcome !== "succeeded" && (
        <p class={run.outcome === "failed" ? "bad" : "quiet"}>
          <SafeText text={run.termination.detail ?? run.termination.type} />{" "}
          {run.termination.code && <code class="tiny">{run.termination.code}</code>}
        </p>
      )}
    </header>
  );
}

const NUMBER = new Intl.NumberFormat("en");

function MeterView({ meter: { name, used, limit } }: { meter: Meter }) {
  if (limit === null) {
    return (
      <span class="number">
        {NUMBER.format(used)} {used === 1 ? name.slice(0, -1) : name}
      </span>
    );
  }
  return (
    <span class="meter number">
      <meter min={0} max={limit} high={limit * 0.8} value={Math.min(used, limit)} aria-label={name} />
      {NUMBER.format(used)} of {NUMBER.format(limit)} {name}
    </span>
  );
}
