/** A run's spans on a time axis, as SVG. Long waits are short and hatched; rows outside of the window aren't drawn. */
import { useRef } from "preact/hooks";
import { duration } from "../../core/time";
import { useWidth, useWindow } from "../../core/layout";
import { shortened } from "../../core/text";
import { ticksOf, timeScale, type TimeScale } from "../../events/timeScale";
import type { Mark, Span, Timeline } from "../../events/timeline";

const ROW = 28;
const HEAD = 44;
const NARROW = 560;
const SHORTEST_BAR = 3;
/** Pixels of a letter of a label, about. */
const LETTER = 7;

/** Most calls take less than a second. */
export function spanDuration(seconds: number): string {
  return seconds < 1 ? `${Math.round(seconds * 1000)} ms` : duration(seconds);
}

interface GanttProps {
  timeline: Timeline;
  isTrueScale: boolean;
}

export function Gantt({ timeline, isTrueScale }: GanttProps) {
  const place = useRef<HTMLDivElement>(null);
  const width = useWidth(place);
  const { spans, marks, end } = timeline;
  const { first, end: last } = useWindow(place, spans.length, ROW);
  const isNarrow = width < NARROW;
  const left = isNarrow ? 104 : 190;
  const right = isNarrow ? 56 : 84;
  const scale = timeScale(timeline, Math.max(60, width - left - right), isTrueScale);
  const height = HEAD + spans.length * ROW + 4;
  const text = `${spans.length} spans in ${duration((end - timeline.start) / 1000)}. The table has the same.`;
  return (
    <div class="gantt" ref={place}>
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={text}>
          <Patterns />
          <clipPath id="labels">
            <rect x={0} y={0} width={left - 8} height={height} />
          </clipPath>
          <g transform={`translate(${left} 0)`}>
            <Axis scale={scale} height={height} />
            <Marks marks={marks} scale={scale} height={height} />
          </g>
          {spans.slice(first, last).map((span, at) => (
            <g key={span.id} transform={`translate(0 ${HEAD + (first + at) * ROW})`}>
              <Row span={span} scale={scale} now={end} left={left} isFirstOfStep={isFirstOfStep(spans, first + at)} width={width} />
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}

function isFirstOfStep(spans: readonly Span[], at: number): boolean {
  return spans[at]!.step !== null && spans[at - 1]?.step !== spans[at]!.step;
}

/** Waits are hatched: they must differ by more than their colour. */
function Patterns() {
  return (
    <defs>
      <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect width="6" height="6" class="hatch-ground" />
        <line x1="0" y1="0" x2="0" y2="6" class="hatch-line" />
      </pattern>
    </defs>
  );
}

function Axis({ scale, height }: { scale: TimeScale; height: number }) {
  const { stretches } = scale;
  const end = stretches.at(-1)?.to ?? 0;
  return (
    <g class="axis">
      <line x1={0} y1={HEAD - 4} x2={end} y2={HEAD - 4} />
      {ticksOf(scale).map(({ x, after }) => (
        <g key={after}>
          <line class="tick" x1={x} y1={HEAD - 9} x2={x} y2={height} />
          <text x={x} y={HEAD - 14} text-anchor={x < 8 ? "start" : "middle"}>
            {after === 0 ? "0" : spanDuration(after / 1000)}
          </text>
        </g>
      ))}
      {stretches
        .filter(({ isShort }) => isShort)
        .map(({ from, to, start, end: until }) => (
          <g key={start}>
            <rect class="gap" x={from} y={HEAD - 4} width={to - from} height={height - HEAD} />
            <text class="waited" x={(from + to) / 2} y={HEAD - 28} text-anchor="middle">
              + {duration((until - start) / 1000)}
            </text>
          </g>
        ))}
    </g>
  );
}

function Marks({ marks, scale, height }: { marks: readonly Mark[]; scale: TimeScale; height: number }) {
  return (
    <g>
      {marks.map((mark) => (
        <g key={mark.seq} class={`mark ${mark.kind}`} transform={`translate(${scale.x(mark.at)} 0)`}>
          <title>{mark.text}</title>
          <line x1={0} y1={HEAD - 4} x2={0} y2={height} />
          <path d={mark.kind === "takeover" ? "M0 33 6 44H-6Z" : "M0 33 5.5 38.5 0 44 -5.5 38.5Z"} />
        </g>
      ))}
    </g>
  );
}

interface RowProps {
  span: Span;
  scale: TimeScale;
  now: number;
  left: number;
  isFirstOfStep: boolean;
  width: number;
}

function Row({ span, scale, now, left, isFirstOfStep, width }: RowProps) {
  const from = scale.x(span.start);
  const size = Math.max(SHORTEST_BAR, scale.x(span.end ?? now) - from);
  const seconds = ((span.end ?? now) - span.start) / 1000;
  return (
    <g class={`span ${span.kind} ${span.problem ?? ""} ${span.end === null ? "open" : ""}`}>
      <title>{[span.label, span.problem, span.detail, spanDuration(seconds)].filter(Boolean).join(" · ")}</title>
      {isFirstOfStep && <line class="step-line" x1={0} y1={0} x2={width} y2={0} />}
      <g clip-path="url(#labels)">
        {isFirstOfStep && (
          <text class="step" x={4} y={18}>
            {span.step}
          </text>
        )}
        <text x={28} y={18}>
          {shortened(span.label, Math.floor((left - 36) / LETTER)).text}
        </text>
      </g>
      {span.earlier.map(({ start, end }) => (
        <rect key={start} class="bar earlier" x={left + scale.x(start)} y={7} width={Math.max(SHORTEST_BAR, scale.x(end) - scale.x(start))} height={14} rx={3} />
      ))}
      <rect class="bar" x={left + from} y={7} width={size} height={14} rx={3} />
      {span.firstToken !== null && <line class="first-token" x1={left + scale.x(span.firstToken)} y1={4} x2={left + scale.x(span.firstToken)} y2={24} />}
      <text class="long" x={width - 4} y={18} text-anchor="end">
        {span.end === null ? "…" : spanDuration(seconds)}
      </text>
    </g>
  );
}
