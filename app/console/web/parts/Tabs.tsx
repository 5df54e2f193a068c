/** Tabs of a page. The chosen one is in the address, and `1` to `9` choose. */
import { useRef } from "preact/hooks";
import { useKeys } from "../core/keys";
import { useChosenInView } from "../core/layout";

export interface Tab {
  id: string;
  name: string;
}

interface TabsProps {
  tabs: readonly Tab[];
  chosen: string;
  onChoose(id: string): void;
}

export function Tabs({ tabs, chosen, onChoose }: TabsProps) {
  useKeys(Object.fromEntries(tabs.map(({ id }, at) => [String(at + 1), () => onChoose(id)])));
  const row = useRef<HTMLDivElement>(null);
  useChosenInView(row, "[aria-selected=true]", chosen);
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (!step) return;
    const at = tabs.findIndex(({ id }) => id === chosen);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    onChoose(next.id);
    document.getElementById(`tab-${next.id}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" ref={row} onKeyDown={onKey}>
      {tabs.map(({ id, name }) => (
        <button
          key={id}
          id={`tab-${id}`}
          role="tab"
          aria-selected={id === chosen}
          aria-controls={`panel-${id}`}
          tabIndex={id === chosen ? 0 : -1}
          onClick={() => onChoose(id)}
        >
          {name}
        </button>
      ))}
    </div>
  );
}
