/** How the runs of the last 24 hours ended: a bar for each hour. */
import { useState } from "preact/hooks";
import { readStatistics, type Bucket } from "../../core/api/workload";
import { usePoll } from "../../core/visible";

const PAUSE = 30_000;
const HEIGHT = 80;
const WIDTH = 10;
const NUMBER = new Intl.NumberFormat("en");
/** From the bottom of a bar to its top. */
const PARTS: readonly [name: string, words: string][] = [
  ["succeeded", "succeeded"],
  ["unfinished", "not done"],
  ["cancelled", "cancelled"],
  ["budget_exceeded", "reached a limit"],
  ["blocked", "blocked"],
  ["failed", "failed"],
];

export function RunHistory() {
  const [buckets, setBuckets] = useState<readonly Bucket[]>([]);
  usePoll(PAUSE, "history", async (signal) => {
    try {
      setBuckets(await readStatistics(signal));
    } catch {
      // The page says that the server can't be reached; the last bars stay.
    }
  });
  if (!buckets.length) return null;
  const highest = Math.max(1, ...buckets.map(totalOf));
  const totals = PARTS.map(([name, words]) => [name, words, buckets.reduce((sum, { runs }) => sum + (runs[name] ?? 0), 0)] as const);
  const text = totals.filter(([, , count]) => count > 0).map(([, words, count]) => `${NUMBER.format(count)} ${words}`);
  return (
    <section class="stack" aria-label="Runs of the last 24 hours">
      <h2>Last 24 hours</h2>
      <svg class="history" viewBox={`0 0 ${buckets.length * WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={text.join(", ") || "No runs"}>
        {buckets.map((bucket, at) => (
          <Bar key={bucket.at.getTime()} bucket={bucket} x={at * WIDTH} highest={highest} />
        ))}
      </svg>
      <p class="row tiny quiet">
        <span class="grow">24 hours ago</span>
        <span>now</span>
      </p>
      <p class="row small history-words">
        {totals.filter(([, , count]) => count > 0).map(([name, words, count]) => (
          <span key={name} class={`of-${name}`}>
            {NUMBER.format(count)} {words}
          </span>
        ))}
        {!text.length && <span class="quiet">No runs</span>}
      </p>
    </section>
  );
}

function Bar({ bucket, x, highest }: { bucket: Bucket; x: number; highest: number }) {
  let top = HEIGHT;
  return (
    <g>
      <title>{`${bucket.at.toLocaleTimeString()}: ${totalOf(bucket)} runs, ${NUMBER.format(bucket.tokens)} tokens`}</title>
      {PARTS.map(([name]) => {
        const height = ((bucket.runs[name] ?? 0) / highest) * HEIGHT;
        top -= height;
        return height > 0 && <rect key={name} class={`of-${name}`} x={x + 1} y={top} width={WIDTH - 2} height={height} />;
      })}
    </g>
  );
}

function totalOf({ runs }: Bucket): number {
  return Object.values(runs).reduce((sum, count) => sum + count, 0);
}
