/** Maps times to pixels. Long stretches in which nothing is executed take little room. */
import type { Piece, Span, Timeline } from "./timeline";

export interface Stretch {
  start: number;
  end: number;
  from: number;
  to: number;
  isShort: boolean;
}

export interface TimeScale {
  stretches: Stretch[];
  x(at: number): number;
}

const SHORT_PIXELS = 24;
const LONG_MILLISECONDS = 30_000;
const LONG_SHARE = 0.05;
const MOST_FOR_WAITS = 0.4;

export function timeScale(timeline: Timeline, width: number, isTrue: boolean): TimeScale {
  const parts = partsOf(timeline);
  const work = sum(parts.filter(({ isIdle }) => !isIdle));
  const isLong = ({ start, end, isIdle }: Part) =>
    !isTrue && isIdle && end - start > LONG_MILLISECONDS && end - start > LONG_SHARE * work;
  const long = parts.filter(isLong);
  const short = long.length ? Math.min(SHORT_PIXELS, (width * MOST_FOR_WAITS) / long.length) : 0;
  const drawn = sum(parts.filter((part) => !isLong(part))) || 1;
  const perMillisecond = (width - short * long.length) / drawn;
  let from = 0;
  const stretches = parts.map((part) => {
    const size = isLong(part) ? short : (part.end - part.start) * perMillisecond;
    const stretch = { start: part.start, end: part.end, from, to: from + size, isShort: isLong(part) };
    from += size;
    return stretch;
  });
  return { stretches, x: (at) => position(stretches, at) };
}

export interface Tick {
  x: number;
  /** Milliseconds since the start, without the stretches that are drawn short. */
  after: number;
}

const TICK_PIXELS = 80;

/** Moments to label, at even times that are far enough from each other. */
export function ticksOf({ stretches }: TimeScale): Tick[] {
  const drawn = stretches.filter(({ isShort }) => !isShort);
  const pixels = drawn.reduce((total, { from, to }) => total + to - from, 0);
  const all = sum(drawn);
  if (!pixels || !all) return [];
  const interval = evenAtLeast((TICK_PIXELS * all) / pixels);
  const found: Tick[] = [];
  let before = 0;
  for (const { start, end, from, to } of drawn) {
    const length = end - start;
    for (let after = Math.ceil(before / interval) * interval; after < before + length; after += interval) {
      found.push({ x: from + ((to - from) * (after - before)) / length, after });
    }
    before += length;
  }
  return found;
}

/** 1, 2 or 5 times a power of ten. */
function evenAtLeast(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((factor) => factor * power >= value) ?? 10) * power;
}

interface Part {
  start: number;
  end: number;
  isIdle: boolean;
}

/** Stretches with work of the run itself and without, in order. */
function partsOf({ spans, start, end }: Timeline): Part[] {
  const busy = merged(spans.filter(({ kind }) => kind === "model" || kind === "tool"), end);
  const parts: Part[] = [];
  let at = start;
  for (const one of busy) {
    if (one.start > at) parts.push({ start: at, end: one.start, isIdle: true });
    parts.push({ start: Math.max(at, one.start), end: one.end, isIdle: false });
    at = one.end;
  }
  if (end > at) parts.push({ start: at, end, isIdle: true });
  return parts.filter((part) => part.end > part.start);
}

function merged(spans: readonly Span[], now: number): Piece[] {
  const pieces = spans.flatMap(({ start, end, earlier }): Piece[] => [...earlier, { start, end: end ?? now }]);
  const found: Piece[] = [];
  for (const { start, end } of pieces.sort((one, other) => one.start - other.start)) {
    const last = found.at(-1);
    if (last && start <= last.end) last.end = Math.max(last.end, end);
    else found.push({ start, end });
  }
  return found;
}

function sum(parts: readonly Piece[]): number {
  return parts.reduce((total, { start, end }) => total + end - start, 0);
}

function position(stretches: readonly Stretch[], at: number): number {
  for (const { start, end, from, to } of stretches) {
    if (at <= start) return from;
    if (at < end) return from + ((to - from) * (at - start)) / (end - start);
  }
  return stretches.at(-1)?.to ?? 0;
}
