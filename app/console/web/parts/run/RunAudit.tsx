/** Who decided what about a run's calls, and what came of it. */
import { useEffect, useState } from "preact/hooks";
import { readAudit, type AuditCase, type AuditPage } from "../../core/api/audit";
import { pageUrl } from "../../core/url";
import { AttemptRow } from "../tickets/History";
import { Empty, Failure, Skeleton } from "../States";
import { TicketStatusMark } from "../Status";
import { SafeText } from "../Text";
import { titleOf } from "../tickets/TicketCard";

export function RunAudit({ runId, version }: { runId: string; version: number }) {
  const [cases, setCases] = useState<AuditCase[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const show = (before: AuditCase[], page: AuditPage) => {
    setCases([...before, ...page.cases]);
    setNext(page.next);
  };
  useEffect(() => {
    const stopped = new AbortController();
    setError(null);
    readAudit(runId, {}, stopped.signal).then(
      (page) => show([], page),
      (problem: unknown) => !stopped.signal.aborted && setError(problem),
    );
    return () => stopped.abort();
  }, [runId, version, reading]);
  if (error) return <Failure error={error} onRetry={() => setReading((count) => count + 1)} />;
  if (!cases) return <Skeleton rows={3} />;
  if (!cases.length) return <Empty title="No call of this run needed a decision" />;
  const more = (cursor: string) => readAudit(runId, { cursor }).then((page) => show(cases, page), setError);
  return (
    <>
      <ul class="stack">
      {cases.map(({ ticket, attempts }) => (
        <li key={ticket.id} class="audit-case stack">
          <p class="row">
            <a href={pageUrl.ticket(ticket.id)}>
              <SafeText text={titleOf(ticket)} />
            </a>
            <TicketStatusMark status={ticket.status} decision={ticket.decision?.action ?? null} />
          </p>
          <ul class="stack small">
            {attempts.map((attempt) => (
              <AttemptRow key={`${attempt.id}:${attempt.at.getTime()}`} asked={ticket.arguments} attempt={attempt} />
            ))}
          </ul>
        </li>
      ))}
    </ul>
    {next && (
      <button class="quiet" onClick={() => void more(next)}>
        Show more
      </button>
    )}
    </>
  );
}
