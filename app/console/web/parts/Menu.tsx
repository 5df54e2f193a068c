/** A button that opens a menu below it. Arrow keys move in it, Escape closes it. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./Icon";

export interface MenuItem {
  name: string;
  /** Why the item can't be chosen. */
  refusal?: string | null;
  onChoose(): void;
}

export function Menu({ label, items }: { label: string; items: readonly MenuItem[] }) {
  const [isOpen, open] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  const buttons = () => [...(place.current?.querySelectorAll<HTMLElement>("[role=menuitem]") ?? [])];
  // The first item gets the focus before the next key.
  useLayoutEffect(() => {
    if (!isOpen) return;
    buttons()[0]?.focus();
    const onPress = (event: Event) => !place.current?.contains(event.target as Node) && open(false);
    document.addEventListener("pointerdown", onPress);
    return () => document.removeEventListener("pointerdown", onPress);
  }, [isOpen]);
  const close = () => {
    open(false);
    place.current?.querySelector("button")?.focus();
  };
  const onKey = (event: KeyboardEvent) => {
    if (!isOpen) return;
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      const all = buttons();
      const at = all.indexOf(document.activeElement as HTMLElement);
      all[(at + step + all.length) % all.length]?.focus();
    } else if (event.key === "Escape") close();
    else if (event.key === "Tab") open(false);
    else return;
    if (event.key !== "Tab") event.preventDefault();
  };
  return (
    <div class="menu" ref={place} onKeyDown={onKey}>
      <button class="plain" aria-haspopup="menu" aria-expanded={isOpen} aria-label={label} onClick={() => open(!isOpen)}>
        <Icon name="more" />
      </button>
      {isOpen && (
        <div role="menu" aria-label={label}>
          {items.map(({ name, refusal, onChoose }) => (
            <button
              key={name}
              role="menuitem"
              tabIndex={-1}
              aria-disabled={!!refusal}
              onClick={() => {
                if (refusal) return;
                close();
                onChoose();
              }}
            >
              {name}
              {refusal && <span class="quiet tiny">{refusal}</span>}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
