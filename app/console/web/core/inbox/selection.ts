/** Tickets that are selected for one decision: calls of one agent and tool. */
import { useState } from "preact/hooks";
import type { Ticket } from "../api/tickets";
import { maySelect } from "../../parts/tickets/BulkBar";

export interface Selection {
  tickets: readonly Ticket[];
  ids: ReadonlySet<string>;
  /** A click on a row selects it. */
  isOn: boolean;
  turn(on: boolean): void;
  toggle(id: string): void;
  /** Select all rows like the first selected one. */
  all(): void;
  clear(): void;
}

export function useSelection(rows: readonly Ticket[]): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  // A ticket that was decided meanwhile leaves the selection.
  const tickets = rows.filter(({ id, status }) => ids.has(id) && status === "open");
  const select = (found: readonly Ticket[]) => setIds(new Set(found.map(({ id }) => id)));
  const [isOn, turnOn] = useState(false);
  return {
    isOn,
    turn: (on) => {
      turnOn(on);
      if (!on) setIds(new Set());
    },
    tickets,
    ids: new Set(tickets.map(({ id }) => id)),
    toggle: (id) => {
      const row = rows.find((one) => one.id === id);
      if (ids.has(id)) select(tickets.filter((one) => one.id !== id));
      else if (row && maySelect(row, tickets)) select([...tickets, row]);
    },
    all: () => select(rows.reduce<readonly Ticket[]>((found, row) => (maySelect(row, found.length ? found : tickets.slice(0, 1)) ? [...found, row] : found), [])),
    clear: () => {
      turnOn(false);
      setIds(new Set());
    },
  };
}
