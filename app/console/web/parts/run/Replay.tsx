/** A slider over the events of a run. The page shows the run as it was at the chosen one. */
import type { ListedEvent } from "../../core/api/events";
import { useKeys } from "../../core/keys";
import { fullTime } from "../../core/time";
import { Icon } from "../Icon";

interface ReplayProps {
  events: readonly ListedEvent[];
  /** The sequence number of the shown event; null for now. */
  at: number | null;
  onChange(at: number | null): void;
}

export function Replay({ events, at, onChange }: ReplayProps) {
  const last = events.length - 1;
  const index = at === null ? last : Math.max(0, events.findLastIndex(({ seq }) => seq <= at));
  const go = (to: number) => {
    const event = events[Math.min(last, Math.max(0, to))];
    if (event) onChange(event.seq);
  };
  useKeys({ "[": () => go(index - 1), "]": () => go(index + 1) });
  const event = events[index];
  if (at === null || !event) return null;
  return (
    <section class="replay notice" aria-label="Replay">
      <div class="row">
        <button class="plain" aria-label="Event before ([)" disabled={index === 0} onClick={() => go(index - 1)}>
          <Icon name="back" />
        </button>
        <input
          class="grow"
          type="range"
          min={0}
          max={last}
          value={index}
          aria-label="Event"
          aria-valuetext={`${event.type}, ${index + 1} of ${events.length}`}
          onInput={(input) => go(Number(input.currentTarget.value))}
        />
        <button class="plain" aria-label="Event after (])" disabled={index === last} onClick={() => go(index + 1)}>
          <Icon name="next" />
        </button>
        <button onClick={() => onChange(null)}>Back to now</button>
      </div>
      <p class="row small">
        <b>As it was at event {event.seq}</b> <code>{event.type}</code> <span class="quiet number">{fullTime(event.at)}</span>
      </p>
    </section>
  );
}
