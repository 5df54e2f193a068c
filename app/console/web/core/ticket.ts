/** One ticket: read, and read again when the stream shows a change. */
import { useEffect, useState } from "preact/hooks";
import { readTicket, type TicketDetail } from "./api/tickets";
import type { Outcome } from "./decisions";

export interface LoadedTicket {
  ticket: TicketDetail | null;
  error: unknown;
  notice: Outcome | null;
  version: number;
  reload(): void;
  onOutcome(outcome: Outcome): void;
}

/** `changes` grows with each change; `onRead` gets every version that is read. */
export function useTicket(id: string | null, changes: number, onRead?: (ticket: TicketDetail) => void): LoadedTicket {
  const [ticket, setTicket] = useState<TicketDetail | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [notice, setNotice] = useState<Outcome | null>(null);
  const [reading, setReading] = useState(0);
  useEffect(() => {
    setTicket(null);
    setNotice(null);
  }, [id]);
  useEffect(() => {
    if (!id) return;
    const stopped = new AbortController();
    setError(null);
    readTicket(id, stopped.signal).then(
      (found) => {
        if (stopped.signal.aborted) return;
        setTicket(found);
        onRead?.(found);
      },
      (problem: unknown) => !stopped.signal.aborted && setError(problem),
    );
    return () => stopped.abort();
  }, [id, changes, reading]);
  const reload = () => setReading((count) => count + 1);
  const onOutcome = (outcome: Outcome) => {
    setNotice(outcome);
    // The card disappears until the call is read again: the server would refuse a decision about the old one.
    if (outcome.kind === "changed") setTicket(null);
    if (outcome.kind !== "refused" && outcome.kind !== "not_sent") reload();
  };
  const shown = ticket?.id === id ? ticket : null;
  return { ticket: shown, error: id ? error : null, notice, version: reading + changes, reload, onOutcome };
}
