/** All events of a run but deltas, as rows of one height; the JSON of one at a time.
 *
 * Long texts are cut in the list. An event that is opened is read whole. */
import { useMemo, useRef, useState } from "preact/hooks";
import { readAllEvents, readWholeEvent, type ListedEvent } from "../../core/api/events";
import { useWindow } from "../../core/layout";
import { useRead } from "../../core/read";
import { summaryOf } from "../../events/summary";
import { JsonText } from "../JsonView";
import { Failure, Skeleton } from "../States";
import { SafeText } from "../Text";

const ROW = 28;

interface RunEventsProps {
  runId: string;
  events: readonly ListedEvent[];
  /** The event that is replayed. */
  at: number | null;
  onReplay(seq: number): void;
}

export function RunEvents({ runId, events, at, onReplay }: RunEventsProps) {
  const [type, setType] = useState("");
  const [chosen, choose] = useState<number | null>(null);
  const types = useMemo(() => countsOf(events), [events]);
  const shown = useMemo(() => (type ? events.filter((event) => event.type === type) : events), [events, type]);
  const list = useRef<HTMLDivElement>(null);
  const { first, end } = useWindow(list, shown.length, ROW);
  const firstSeq = events[0]?.seq ?? 1;
  return (
    <section class="stack" aria-label="Events">
      <div class="row">
        <select class="type" aria-label="Type" value={type} onChange={(event) => setType(event.currentTarget.value)}>
          <option value="">All {events.length} events</option>
          {types.map(([name, count]) => (
            <option key={name} value={name}>
              {name} ({count})
            </option>
          ))}
        </select>
        <span class="quiet small">Deltas are left out.</span>
        <span class="grow" />
        <Download runId={runId} type={type} />
      </div>
      {firstSeq > 1 && <p class="notice">Events before {firstSeq} are no longer kept.</p>}
      <div class="events" ref={list}>
        <div style={{ height: `${first * ROW}px` }} />
        {shown.slice(first, end).map((event) => (
          <div key={event.seq}>
            <Row event={event} isChosen={event.seq === chosen} isReplayed={event.seq === at} onChoose={() => choose(event.seq === chosen ? null : event.seq)} />
            {event.seq === chosen && (
              <div class="event-body stack">
                <Whole runId={runId} event={event} />
                <p>
                  <button class="link small" onClick={() => onReplay(event.seq)}>
                    Show the run as it was then
                  </button>
                </p>
              </div>
            )}
          </div>
        ))}
        <div style={{ height: `${(shown.length - end) * ROW}px` }} />
      </div>
    </section>
  );
}

interface RowProps {
  event: ListedEvent;
  isChosen: boolean;
  isReplayed: boolean;
  onChoose(): void;
}

function Row({ event, isChosen, isReplayed, onChoose }: RowProps) {
  return (
    <button class={`event ${isReplayed ? "replayed" : ""}`} aria-expanded={isChosen} onClick={onChoose}>
      <span class="quiet number seq">{event.seq}</span>
      <span class="quiet number time">{event.at.toISOString().slice(11, 23)}</span>
      <code class="what">{event.type}</code>
      <span class="quiet cut">
        <SafeText text={summaryOf(event)} />
      </span>
    </button>
  );
}

function countsOf(events: readonly ListedEvent[]): [string, number][] {
  const counts = new Map<string, number>();
  for (const { type } of events) counts.set(type, (counts.get(type) ?? 0) + 1);
  return [...counts].sort(([one], [other]) => one.localeCompare(other));
}

/** An event with its whole texts. */
function Whole({ runId, event: { seq, wire } }: { runId: string; event: ListedEvent }) {
  const isCut = "cut" in wire;
  const { value, error, retry } = useRead((signal) => readWholeEvent(runId, seq, signal), `${runId}:${seq}`, isCut);
  if (error) return <Failure error={error} onRetry={retry} />;
  const whole = isCut ? value : wire;
  return whole ? <JsonText value={whole} /> : <Skeleton rows={3} />;
}

function Download({ runId, type }: { runId: string; type: string }) {
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const start = async () => {
    setBusy(true);
    setError(null);
    try {
      save(runId, await readAllEvents(runId, type));
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return (
    <>
      {error ? <Failure error={error} /> : null}
      <button disabled={isBusy} onClick={() => void start()}>
        {isBusy ? "Reading the events …" : "Download NDJSON"}
      </button>
    </>
  );
}

function save(runId: string, events: readonly ListedEvent[]): void {
  const text = events.map(({ wire }) => `${JSON.stringify(wire)}\n`).join("");
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = `run-${runId}.ndjson`;
  link.click();
  URL.revokeObjectURL(url);
}
