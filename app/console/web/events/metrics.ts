/** Metrics of one process over time: parsed from their text, and turned into series. */
export interface Sample {
  at: number;
  /** Values of each metric, by its labels as text. */
  values: ReadonlyMap<string, ReadonlyMap<string, number>>;
}

/** One point per two samples; null where nothing was measured. */
export type Series = readonly (number | null)[];

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;
export const MOST_SAMPLES = 180;

export function sampleOf(text: string, at: number): Sample {
  const values = new Map<string, Map<string, number>>();
  for (const line of text.split("\n")) {
    const found = line.startsWith("holdfast_") ? LINE.exec(line) : null;
    if (!found) continue;
    const [, name, labels, value] = found;
    const ofMetric = values.get(name!) ?? new Map<string, number>();
    ofMetric.set(labels ?? "", Number(value));
    values.set(name!, ofMetric);
  }
  return { at, values };
}

export function withSample(samples: readonly Sample[], sample: Sample): Sample[] {
  return [...samples, sample].slice(-MOST_SAMPLES);
}

export function labelsOf(text: string): Record<string, string> {
  return Object.fromEntries([...text.matchAll(LABEL)].map(([, name, value]) => [name!, value!]));
}

/** The sum of a metric over its labels. */
export function total(sample: Sample, name: string, wanted: Record<string, string> = {}): number | null {
  const found = sample.values.get(name);
  if (!found) return null;
  let sum = 0;
  for (const [labels, value] of found) {
    const has = labelsOf(labels);
    if (Object.entries(wanted).every(([label, text]) => has[label] === text)) sum += value;
  }
  return sum;
}

export function gauge(samples: readonly Sample[], name: string): Series {
  return samples.map((sample) => total(sample, name));
}

/** How much a counter grows per second. A restart of the server begins at zero again. */
export function rate(samples: readonly Sample[], name: string, wanted: Record<string, string> = {}): Series {
  return pairs(samples, (before, now) => {
    const [old, value] = [total(before, name, wanted) ?? 0, total(now, name, wanted)];
    return value === null ? null : Math.max(0, value - (value < old ? 0 : old)) / ((now.at - before.at) / 1000);
  });
}

/** A quantile of what a histogram measured between two samples: the upper bound of its bucket. */
export function quantile(samples: readonly Sample[], name: string, share: number): Series {
  return pairs(samples, (before, now) => {
    const counts = new Map<number, number>();
    for (const [labels, value] of now.values.get(`${name}_bucket`) ?? []) {
      const bound = Number(labelsOf(labels)["le"]?.replace("+Inf", "Infinity"));
      const old = before.values.get(`${name}_bucket`)?.get(labels) ?? 0;
      counts.set(bound, (counts.get(bound) ?? 0) + Math.max(0, value - old));
    }
    const bounds = [...counts].sort(([one], [other]) => one - other);
    const all = bounds.at(-1)?.[1] ?? 0;
    if (!all) return null;
    const found = bounds.find(([, count]) => count >= share * all)![0];
    return Number.isFinite(found) ? found : (bounds.at(-2)?.[0] ?? null);
  });
}

/** The values of a label, such as the models. */
export function valuesOf(samples: readonly Sample[], name: string, label: string): string[] {
  const found = samples.at(-1)?.values.get(name)?.keys() ?? [];
  return [...new Set([...found].flatMap((labels) => labelsOf(labels)[label] ?? []))].sort();
}

function pairs(samples: readonly Sample[], value: (before: Sample, now: Sample) => number | null): Series {
  return samples.slice(1).map((now, at) => value(samples[at]!, now));
}
