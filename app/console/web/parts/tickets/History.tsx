/** Decisions, votes and refused attempts of one ticket, from the audit. */
import { useEffect, useState } from "preact/hooks";
import { readAudit, type Attempt } from "../../core/api/audit";
import type { Json } from "../../core/api/messages";
import type { Ticket } from "../../core/api/tickets";
import { clockTime, fullTime, useNow } from "../../core/time";
import { wordOf } from "../Status";
import { Diff } from "../Diff";
import { JsonText } from "../JsonView";
import { SafeText } from "../Text";

export function History({ ticket, version }: { ticket: Ticket; version: number }) {
  const [attempts, setAttempts] = useState<Attempt[]>([]);
  useEffect(() => {
    const stopped = new AbortController();
    readAudit(ticket.runId, { ticket_id: ticket.id }, stopped.signal).then(
      ({ cases }) => setAttempts(cases[0]?.attempts ?? []),
      // The card is complete without it; the run's page shows the audit with its errors.
      () => undefined,
    );
    return () => stopped.abort();
  }, [ticket.id, version]);
  if (!attempts.length) return null;
  return (
    <section aria-label="History">
      <h2>History</h2>
      <ul class="stack small">
        {attempts.map((attempt) => (
          <AttemptRow key={`${attempt.id}:${attempt.at.getTime()}`} asked={ticket.arguments} attempt={attempt} />
        ))}
      </ul>
    </section>
  );
}

/** `asked` are the arguments that the model wanted. */
export function AttemptRow({ attempt, asked }: { attempt: Attempt; asked: Json }) {
  const now = useNow(60);
  const word = attempt.effect === "refused" ? `tried to ${attempt.action}` : wordOf(attempt.action);
  const tail = attempt.effect === "voted" ? " (one of several votes)" : attempt.refusal ? `: refused, ${attempt.refusal}` : "";
  return (
    <li>
      <b>
        <SafeText text={attempt.by} />
      </b>{" "}
      {word}
      {tail}{" "}
      <time class="quiet" dateTime={attempt.at.toISOString()} title={fullTime(attempt.at)}>
        {clockTime(attempt.at, now)}
      </time>
      {attempt.reason && (
        <p class="quiet">
          “<SafeText text={attempt.reason} />”
        </p>
      )}
      {attempt.action === "edit" && <Diff before={asked} after={attempt.payload} />}
      {attempt.action === "respond" && attempt.payload !== null && <JsonText value={attempt.payload} />}
    </li>
  );
}
