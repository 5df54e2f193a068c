/** Times in words, and a clock that redraws them. */
import { useEffect, useState } from "preact/hooks";

const UNITS: readonly [number, string][] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A duration with its two largest units: `2 d 4 h`, `4 min`, `0.9 s`. */
export function duration(seconds: number): string {
  if (seconds < 10) return `${(Math.round(seconds * 10) / 10).toString()} s`;
  const found: string[] = [];
  let left = Math.round(seconds);
  for (const [size, unit] of UNITS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count > 0) found.push(`${count} ${unit}`);
    else if (found.length) break;
    if (found.length === 2 || (found.length && unit === "min")) break;
  }
  return found.join(" ");
}

/** How long ago something was, with one unit. */
export function age(at: Date, now: Date): string {
  const seconds = Math.max(0, (now.getTime() - at.getTime()) / 1000);
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return "now";
}

/** `4 min ago`, or `now`. */
export function ago(at: Date, now: Date): string {
  const text = age(at, now);
  return text === "now" ? text : `${text} ago`;
}

/** `14:05`, and with the day if it isn't today. */
export function clockTime(at: Date, now: Date): string {
  const time = at.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  if (at.toDateString() === now.toDateString()) return time;
  return `${at.toLocaleDateString(undefined, { day: "numeric", month: "short" })} ${time}`;
}

export function fullTime(at: Date): string {
  return at.toISOString().replace("T", " ").replace("Z", " UTC");
}

/** The time, redrawn every `seconds`. */
export function useNow(seconds = 10): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), seconds * 1000);
    return () => clearInterval(timer);
  }, [seconds]);
  return now;
}
