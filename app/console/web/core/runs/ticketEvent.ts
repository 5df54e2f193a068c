/** The event at which a run asked, for links from a ticket to its run: `?ticket=ID`. */
import { useEffect } from "preact/hooks";
import { readAllEvents } from "../api/events";
import type { Ticket } from "../api/tickets";
import { queryOf, setQuery } from "../url";

/** Scrolls to the ticket of the address while it is open, and else replays the run at the moment at which it was opened. */
export function useTicketInAddress(runId: string, tickets: readonly Ticket[], onReplay: (seq: number) => void): void {
  useEffect(() => {
    const id = queryOf()["ticket"];
    if (!id) return;
    setQuery({ ticket: null });
    if (tickets.some((one) => one.id === id && one.status === "open")) {
      document.querySelector(`[data-ticket-place="${CSS.escape(id)}"]`)?.scrollIntoView();
      return;
    }
    const open = async () => {
      const opened = await readAllEvents(runId, "ticket_opened");
      const found = opened.find(({ wire }) => (wire["ticket"] as { id?: string } | undefined)?.id === id);
      if (found) onReplay(found.seq);
    };
    // Without the event, for example after retention, the page shows the run as it is now.
    open().catch(() => undefined);
  }, [runId]);
}
