/** A ticket in its conversation, with the same card as in the inbox. */
import type { Me } from "../../core/api/session";
import type { Ticket } from "../../core/api/tickets";
import { useTicket } from "../../core/ticket";
import { Failure, Skeleton } from "../States";
import { TicketCard } from "./TicketCard";

export function TicketPlace({ ticket, me }: { ticket: Ticket; me: Me | null }) {
  const card = useTicket(ticket.id, ticket.status === "open" ? 0 : 1);
  return (
    <div class="ticket-place" data-ticket-place={ticket.id}>
      {card.error ? <Failure error={card.error} onRetry={card.reload} /> : null}
      {!card.ticket && !card.error && <Skeleton rows={3} />}
      {card.ticket && !card.error && (
        <TicketCard
          ticket={card.ticket}
          me={me}
          version={card.version}
          notice={card.notice}
          onOutcome={card.onOutcome}
          isInRun
        />
      )}
    </div>
  );
}
