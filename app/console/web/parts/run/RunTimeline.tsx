/** What a run did and when: a chart, and the same as a table. */
import { useMemo, useState } from "preact/hooks";
import type { ListedEvent } from "../../core/api/events";
import { listTasks } from "../../core/api/backgroundTasks";
import { useRead } from "../../core/read";
import { clockTime } from "../../core/time";
import { timelineOf, withTasks, type Timeline } from "../../events/timeline";
import { Empty } from "../States";
import { Gantt, spanDuration } from "./Gantt";

const MOST_ROWS = 1000;

interface RunTimelineProps {
  events: readonly ListedEvent[];
  runId: string;
  /** Grows when the run has changed. */
  version: number;
  isReplay: boolean;
}

export function RunTimeline({ events, runId, version, isReplay }: RunTimelineProps) {
  // Without them the timeline has the run's own work. A task has no events, so a past run has none.
  const { value: tasks } = useRead((signal) => listTasks(runId, signal), `${runId}:${version}`, !isReplay);
  const timeline = useMemo(() => withTasks(timelineOf(events), isReplay ? [] : (tasks ?? [])), [events, tasks, isReplay]);
  const [asTable, showTable] = useState(false);
  const [isTrueScale, setTrueScale] = useState(false);
  if (!timeline.spans.length) return <Empty title="The run hasn’t begun" />;
  return (
    <section class="stack" aria-label="Timeline">
      <div class="row">
        <div class="segments" role="group" aria-label="Show the timeline as">
          <button aria-pressed={!asTable} onClick={() => showTable(false)}>
            Chart
          </button>
          <button aria-pressed={asTable} onClick={() => showTable(true)}>
            Table
          </button>
        </div>
        {!asTable && (
          <label class="row small">
            <input type="checkbox" checked={isTrueScale} onChange={(event) => setTrueScale(event.currentTarget.checked)} />
            True scale of waits
          </label>
        )}
        {!asTable && <Legend />}
      </div>
      {asTable ? <SpanTable timeline={timeline} /> : <Gantt timeline={timeline} isTrueScale={isTrueScale} />}
      {!asTable && timeline.marks.length > 0 && <MarkList timeline={timeline} />}
    </section>
  );
}

function Legend() {
  return (
    <p class="row tiny quiet legend" aria-hidden="true">
      <span class="key model" /> model <span class="key tool" /> tool <span class="key task" /> background task <span class="key wait" /> wait
    </p>
  );
}

function MarkList({ timeline }: { timeline: Timeline }) {
  return (
    <ul class="row small marks">
      {timeline.marks.map(({ seq, at, kind, text }) => (
        <li key={seq} class={kind === "takeover" ? "warn" : ""}>
          {kind === "takeover" ? "▲" : "◆"} {text} <span class="quiet">{clockTime(new Date(at), new Date())}</span>
        </li>
      ))}
    </ul>
  );
}

function SpanTable({ timeline: { spans, marks, start, end } }: { timeline: Timeline }) {
  const rows = [
    ...spans.map((span) => ({ at: span.start, step: span.step, what: span.label, long: ((span.end ?? end) - span.start) / 1000, more: [span.problem, span.detail].filter(Boolean).join(", ") })),
    ...marks.map((mark) => ({ at: mark.at, step: null, what: mark.text, long: null, more: mark.kind === "takeover" ? "takeover" : "" })),
  ].sort((one, other) => one.at - other.at);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Spans and moments">
      <table class="table">
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col">What</th>
            <th scope="col" class="right">After</th>
            <th scope="col" class="right">Duration</th>
            <th scope="col">More</th>
          </tr>
        </thead>
        <tbody>
          {rows.slice(0, MOST_ROWS).map((row, at) => (
            <tr key={at}>
              <td class="number">{row.step}</td>
              <td>{row.what}</td>
              <td class="right number">{spanDuration((row.at - start) / 1000)}</td>
              <td class="right number">{row.long === null ? "" : spanDuration(row.long)}</td>
              <td class="quiet">{row.more}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rows.length > MOST_ROWS && <p class="quiet small">The first {MOST_ROWS} of {rows.length}.</p>}
    </div>
  );
}
