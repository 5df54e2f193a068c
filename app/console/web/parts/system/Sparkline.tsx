/** A series as a small line, with its last and its greatest value. */
import type { Series } from "../../events/metrics";

const WIDTH = 240;
const HEIGHT = 44;
const POINTS = 180;

interface SparklineProps {
  name: string;
  series: Series;
  text(value: number): string;
}

export function Sparkline({ name, series, text }: SparklineProps) {
  const known = series.filter((value) => value !== null);
  const last = known.at(-1);
  const most = Math.max(0, ...known);
  return (
    <figure class="sparkline">
      <figcaption class="small quiet">{name}</figcaption>
      <b class="number">{last === undefined ? "–" : text(last)}</b>
      <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
        <line x1={0} y1={HEIGHT - 1} x2={WIDTH} y2={HEIGHT - 1} />
        {pathsOf(series, most).map((path, at) => (
          <path key={at} d={path} />
        ))}
      </svg>
      <span class="tiny quiet number">{known.length ? `most ${text(most)}` : "nothing yet"}</span>
    </figure>
  );
}

/** A gap in the series is a gap in the line. The newest point is at the right. */
export function pathsOf(series: Series, most: number): string[] {
  const step = WIDTH / (POINTS - 1);
  const first = WIDTH - (series.length - 1) * step;
  const paths: string[] = [];
  let isOpen = false;
  series.forEach((value, at) => {
    if (value === null) {
      isOpen = false;
      return;
    }
    const x = (first + at * step).toFixed(1);
    const y = (HEIGHT - 3 - (most ? value / most : 0) * (HEIGHT - 6)).toFixed(1);
    if (isOpen) paths[paths.length - 1] += `L${x} ${y}`;
    else paths.push(`M${x} ${y}h0.1`);
    isOpen = true;
  });
  return paths;
}
