/** Why a run doesn't move, and who has to act. */
import { explainRun, type Explanation, type Run } from "../../core/api/runs";
import type { Ticket } from "../../core/api/tickets";
import type { Me } from "../../core/api/session";
import { useRead } from "../../core/read";
import { ago, clockTime, useNow } from "../../core/time";
import { pageUrl } from "../../core/url";
import { shortId } from "../../core/ids";
import { withoutRequests } from "../../core/words/sentences";
import { BackgroundTasks } from "./BackgroundTasks";
import { Failure } from "../States";
import { SafeText } from "../Text";
import { titleOf } from "../tickets/TicketCard";

/** Open by itself unless the run executes or has succeeded: then there is nothing to explain. */
export function isWorthExplaining(run: Run): boolean {
  return run.status !== "running" && run.outcome !== "succeeded";
}

interface ExplainProps {
  run: Run;
  version: number;
  me: Me | null;
  /** Open tickets that the page doesn't show elsewhere. */
  tickets: readonly Ticket[];
}

export function Explain({ run, version, me, tickets }: ExplainProps) {
  const { value: explanation, error, retry } = useRead((signal) => explainRun(run.id, signal), `${run.id}:${run.status}:${version}`);
  if (error) return <Failure error={error} onRetry={retry} />;
  if (!explanation) return null;
  return (
    <section class="explain notice" aria-label="Why it stands still">
      <ul class="stack">
        {explanation.reasons.map(({ code, text }) => (
          <li key={code}>
            <SafeText text={withoutRequests(text)} /> <code class="quiet tiny">{code}</code>
          </li>
        ))}
        {explanation.failure && (
          <li class="bad">
            <SafeText text={explanation.failure.detail} /> <code class="tiny">{explanation.failure.code}</code>
          </li>
        )}
      </ul>
      {tickets.length > 0 && (
        <ul class="row small" aria-label="Open tickets">
          {tickets.map((ticket) => (
            <li key={ticket.id}>
              <a href={pageUrl.ticket(ticket.id)}>
                <SafeText text={titleOf(ticket)} />
              </a>
            </li>
          ))}
        </ul>
      )}
      <Facts explanation={explanation} />
      {run.waitingReason === "background_tasks" && <BackgroundTasks runId={run.id} version={version} me={me} />}
    </section>
  );
}

function Facts({ explanation: { owner, queuePosition, activeRunId, nextAttemptAt, below } }: { explanation: Explanation }) {
  const now = useNow();
  if (!owner && queuePosition === null && !activeRunId && !nextAttemptAt && !below.length) return null;
  return (
    <p class="row small quiet">
      {owner && (
        <span class={owner.isAlive ? "" : "bad"}>
          worker {owner.host}, process {owner.pid}, last heartbeat {ago(owner.lastHeartbeatAt, now)}
          {!owner.isAlive && ": lost"}
        </span>
      )}
      {queuePosition !== null && <span>{queuePosition} before it in the queue of its thread</span>}
      {activeRunId && <a href={pageUrl.run(activeRunId)}>the run before it</a>}
      {nextAttemptAt && <span>next attempt {clockTime(nextAttemptAt, now)}</span>}
      {below.map((one) => (
        <a key={one.id} href={pageUrl.run(one.id)}>
          {one.agentId} {shortId(one.id)}: {one.status}
        </a>
      ))}
    </p>
  );
}
