/** The last decisions, for an inbox that is empty. */
import { useEffect, useState } from "preact/hooks";
import { listTickets } from "../../core/api/ticketLists";
import type { Ticket } from "../../core/api/tickets";
import { TicketRow } from "./TicketRow";

const SHOWN = 5;

export function RecentlyDecided({ now, onChoose }: { now: Date; onChoose(id: string): void }) {
  const [tickets, setTickets] = useState<Ticket[]>([]);
  useEffect(() => {
    const stopped = new AbortController();
    listTickets({ status: "decided", limit: SHOWN }, stopped.signal).then(
      (page) => setTickets(page.items),
      // The inbox is complete without them; its own errors are shown.
      () => undefined,
    );
    return () => stopped.abort();
  }, []);
  if (!tickets.length) return null;
  return (
    <section class="rows" aria-label="Decided last">
      <h2 class="small quiet list-title">Decided last</h2>
      {tickets.map((ticket) => (
        <TicketRow key={ticket.id} ticket={ticket} isChosen={false} now={now} onChoose={onChoose} />
      ))}
    </section>
  );
}
