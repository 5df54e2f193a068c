/** A ticket in its conversation, with the same card as in the inbox. */
import type { Me } from "../../core/api/session";
import type { Ticket } from "../../core/api/tickets";
import { useTicket } from "../../core/ticket";
import { Failure, Skeleton } from "../States";
import { TicketCard } from "./TicketCard";

export function TicketPlace({ ticket, me }: { ticket: Ticket; me: Me | null }) {
  const card = useTicket(ticket.id, ticket.status === "open" ? 0 : 1);
  if (card.error) return <Failure error={card.error} onRetry={card.reload} />;
  if (!card.ticket) return <Skeleton rows={3} />;
  return (
    <div class="ticket-place">
      <TicketCard
        ticket={card.ticket}
        me={me}
        version={card.version}
        notice={card.notice}
        onOutcome={card.onOutcome}
        isInRun
      />
    </div>
  );
}
