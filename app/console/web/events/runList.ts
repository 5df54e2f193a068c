/** A list of runs that is read again and again. Rows keep their places: changed rows change in place, new ones wait. */
import type { ListedRun, RunPage } from "../core/api/runLists";

export interface RunListState {
  runs: ListedRun[];
  /** Runs that came since; the reader decides when they are shown. */
  newer: ListedRun[];
  /** Runs in the list that no longer fit its filters. */
  left: ReadonlySet<string>;
  next: string | null;
  isLoaded: boolean;
}

export const EMPTY_RUNS: RunListState = { runs: [], newer: [], left: new Set(), next: null, isLoaded: false };

/** The first page, for filters that have just been chosen. */
export function firstPage(page: RunPage): RunListState {
  return { runs: page.items, newer: [], left: new Set(), next: page.next, isLoaded: true };
}

/** The first page, read again. */
export function polled(state: RunListState, page: RunPage): RunListState {
  if (!state.runs.length) return firstPage(page);
  const read = new Map(page.items.map((run) => [run.id, run]));
  const known = new Set(state.runs.map(({ id }) => id));
  const oldest = page.next === null ? null : page.items.at(-1)?.createdAt;
  const left = new Set(state.left);
  for (const { id, createdAt } of state.runs) {
    if (read.has(id)) left.delete(id);
    else if (oldest === null || (oldest && createdAt > oldest)) left.add(id);
  }
  return {
    ...state,
    runs: state.runs.map((run) => read.get(run.id) ?? run),
    newer: page.items.filter(({ id }) => !known.has(id)),
    left,
  };
}

export function withMore(state: RunListState, page: RunPage): RunListState {
  const known = new Set(state.runs.map(({ id }) => id));
  return { ...state, runs: [...state.runs, ...page.items.filter(({ id }) => !known.has(id))], next: page.next };
}

export function withNewer(state: RunListState): RunListState {
  return { ...state, runs: [...state.newer, ...state.runs.filter(({ id }) => !state.left.has(id))], newer: [], left: new Set() };
}

export function replaced(state: RunListState, run: ListedRun): RunListState {
  return { ...state, runs: state.runs.map((one) => (one.id === run.id ? run : one)) };
}

/** How many runs have come or changed from one state of the list to another. */
export function changesBetween(before: RunListState, after: RunListState): number {
  if (before === after) return 0;
  const seen = new Map([...before.newer, ...before.runs].map((run) => [run.id, run.updatedAt.getTime()]));
  return [...after.newer, ...after.runs].filter((run) => seen.get(run.id) !== run.updatedAt.getTime()).length;
}
