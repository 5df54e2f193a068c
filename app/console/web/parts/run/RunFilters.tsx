/** The filters of the list of runs. They are in the address, so that a filtered list can be bookmarked. */
import { useEffect, useState } from "preact/hooks";
import { isFiltered, STATES, type RunFilters as Filters } from "../../core/runs/filters";

interface RunFiltersProps {
  filters: Filters;
  agents: readonly string[];
  onChange(filters: Filters): void;
}

const NONE: Filters = { state: "", agent: "", code: "", from: "", to: "", metadata: "" };

export function RunFilters({ filters, agents, onChange }: RunFiltersProps) {
  const set = (change: Partial<Filters>) => onChange({ ...filters, ...change });
  return (
    <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
      <select aria-label="State" data-filter value={filters.state} onChange={(event) => set({ state: event.currentTarget.value })}>
        {STATES.map(([name, text]) => (
          <option key={name} value={name}>
            {text}
          </option>
        ))}
      </select>
      <select aria-label="Agent" value={filters.agent} onChange={(event) => set({ agent: event.currentTarget.value })}>
        <option value="">All agents</option>
        {[...new Set([...agents, ...(filters.agent ? [filters.agent] : [])])].map((id) => (
          <option key={id}>{id}</option>
        ))}
      </select>
      <label class="row small quiet">
        from
        <input type="date" value={filters.from} max={filters.to} onChange={(event) => set({ from: event.currentTarget.value })} />
      </label>
      <label class="row small quiet">
        to
        <input type="date" value={filters.to} min={filters.from} onChange={(event) => set({ to: event.currentTarget.value })} />
      </label>
      <TypedFilter label="Ended with code" value={filters.code} onChange={(code) => set({ code })} />
      <TypedFilter label="Metadata: key=value" value={filters.metadata} onChange={(metadata) => set({ metadata })} />
      {isFiltered(filters) && (
        <button type="button" class="link small" onClick={() => onChange(NONE)}>
          Show all
        </button>
      )}
    </form>
  );
}

/** A text that counts when the reader presses Enter or leaves the field. */
function TypedFilter({ label, value, onChange }: { label: string; value: string; onChange(value: string): void }) {
  const [text, setText] = useState(value);
  useEffect(() => setText(value), [value]);
  const send = () => text.trim() !== value && onChange(text.trim());
  return (
    <input
      class="typed"
      aria-label={label}
      placeholder={label}
      value={text}
      onInput={(event) => setText(event.currentTarget.value)}
      onBlur={send}
      onKeyDown={(event) => event.key === "Enter" && send()}
    />
  );
}
