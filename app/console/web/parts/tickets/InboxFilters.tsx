/** The filters of the inbox. They are in the address, so that a filtered inbox can be bookmarked. */
import { useState } from "preact/hooks";
import { shortId } from "../../core/ids";
import type { TicketQuery } from "../../core/api/ticketLists";
import type { TicketStatus } from "../../core/api/tickets";

export interface Filters {
  status: TicketStatus | "expiring" | "all";
  mine: boolean;
  agent: string;
  tool: string;
  kind: string;
  /** What expires first comes first. */
  byExpiry: boolean;
  /** From a link: only tickets of this run or thread. */
  run: string;
  thread: string;
}

/** What expires within an hour expires soon. */
const HOUR = 3_600_000;

export function isFiltered({ status, byExpiry: _, ...others }: Filters): boolean {
  return status !== "open" || Object.values(others).some(Boolean);
}

const KINDS: readonly [string, string][] = [
  ["approval", "Approvals"],
  ["input", "Questions"],
  ["limit", "Limits"],
  ["outcome_unknown", "Unknown outcomes"],
  ["auth", "Access"],
  ["frontend", "In applications"],
];

const STATUSES: readonly [Filters["status"], string][] = [
  ["open", "Open"],
  ["expiring", "Expire soon"],
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
    kind: KINDS.find(([name]) => name === query["kind"])?.[0] ?? "",
    byExpiry: query["sort"] === "expiry",
    run: query["run"] ?? "",
    thread: query["thread"] ?? "",
  };
}

/** The parameters of the address; defaults are left out. */
export function queryOfFilters({ status, mine, agent, tool, kind, byExpiry, run, thread }: Filters): Record<string, string | null> {
  return {
    status: status === "open" ? null : status,
    mine: mine ? "1" : null,
    agent: agent || null,
    tool: tool || null,
    kind: kind || null,
    sort: byExpiry ? "expiry" : null,
    run: run || null,
    thread: thread || null,
  };
}

export function ticketQuery({ status, mine, agent, tool, kind, byExpiry, run, thread }: Filters, now: Date): TicketQuery {
  return {
    status: status === "all" ? undefined : status === "expiring" ? "open" : status,
    mine,
    agent: agent || undefined,
    tool: tool || undefined,
    kind: kind || undefined,
    expiresBefore: status === "expiring" ? new Date(now.getTime() + HOUR) : undefined,
    byExpiry: byExpiry || status === "expiring",
    run: run || undefined,
    thread: thread || undefined,
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
      class="filters inbox-filters"
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
      <select aria-label="Kind" value={filters.kind} onChange={(event) => set({ kind: event.currentTarget.value })}>
        <option value="">All kinds</option>
        {KINDS.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
      {filters.status !== "expiring" && (
        <select aria-label="Order" value={filters.byExpiry ? "expiry" : ""} onChange={(event) => set({ byExpiry: event.currentTarget.value !== "" })}>
          <option value="">Newest first</option>
          <option value="expiry">Expiring first</option>
        </select>
      )}
      <div class="row">
        <input
          aria-label="Tool"
          class="tool"
          placeholder="Tool  /"
          value={tool}
          data-filter
          onInput={(event) => setTool(event.currentTarget.value)}
          onBlur={() => tool.trim() !== filters.tool && set({ tool: tool.trim() })}
        />
        {(filters.run || filters.thread) && (
          <button type="button" class="chip" onClick={() => set({ run: "", thread: "" })}>
            Only of {filters.run ? `run ${shortId(filters.run)}` : `thread ${shortId(filters.thread)}`} ✕
          </button>
        )}
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
      </div>
    </form>
  );
}
