/** The filters of the inbox. They are in the address, so that a filtered inbox can be bookmarked. */
import { useState } from "preact/hooks";
import type { TicketQuery, TicketStatus } from "../../core/api/tickets";

export interface Filters {
  status: TicketStatus | "all";
  mine: boolean;
  agent: string;
  tool: string;
}

const STATUSES: readonly [Filters["status"], string][] = [
  ["open", "Open"],
  ["decided", "Decided"],
  ["expired", "Expired"],
  ["void", "Void"],
  ["all", "All"],
];

export function filtersOf(query: Record<string, string>): Filters {
  const found = STATUSES.find(([name]) => name === query["status"]);
  return {
    status: found?.[0] ?? "open",
    mine: query["mine"] === "1",
    agent: query["agent"] ?? "",
    tool: query["tool"] ?? "",
  };
}

/** The parameters of the address; defaults are left out. */
export function queryOfFilters({ status, mine, agent, tool }: Filters): Record<string, string | null> {
  return {
    status: status === "open" ? null : status,
    mine: mine ? "1" : null,
    agent: agent || null,
    tool: tool || null,
  };
}

export function ticketQuery({ status, mine, agent, tool }: Filters): TicketQuery {
  return {
    status: status === "all" ? undefined : status,
    mine,
    agent: agent || undefined,
    tool: tool || undefined,
  };
}

interface InboxFiltersProps {
  filters: Filters;
  agents: readonly string[];
  /** Whether "only mine" makes a difference: someone else could decide. */
  hasPeople: boolean;
  onChange(filters: Filters): void;
  isSelecting: boolean;
  onSelecting(on: boolean): void;
}

export function InboxFilters({ filters, agents, hasPeople, onChange, isSelecting, onSelecting }: InboxFiltersProps) {
  const [tool, setTool] = useState(filters.tool);
  const set = (change: Partial<Filters>) => onChange({ ...filters, ...change });
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        set({ tool: tool.trim() });
      }}
    >
      <select
        aria-label="Status"
        value={filters.status}
        onChange={(event) => set({ status: event.currentTarget.value as Filters["status"] })}
      >
        {STATUSES.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
      {(agents.length > 1 || filters.agent) && (
        <select aria-label="Agent" value={filters.agent} onChange={(event) => set({ agent: event.currentTarget.value })}>
          <option value="">All agents</option>
          {[...new Set([...agents, ...(filters.agent ? [filters.agent] : [])])].map((id) => (
            <option key={id}>{id}</option>
          ))}
        </select>
      )}
      <input
        aria-label="Tool"
        placeholder="Tool  /"
        value={tool}
        data-filter
        onInput={(event) => setTool(event.currentTarget.value)}
        onBlur={() => tool.trim() !== filters.tool && set({ tool: tool.trim() })}
      />
      <label class="row small">
        <input type="checkbox" checked={isSelecting} onChange={(event) => onSelecting(event.currentTarget.checked)} />
        Select
      </label>
      {hasPeople && (
        <label class="row small">
          <input type="checkbox" checked={filters.mine} onChange={(event) => set({ mine: event.currentTarget.checked })} />
          I can decide
        </label>
      )}
    </form>
  );
}
