/** Loads a list of runs, and reads its first page again while the page is visible. */
import { useMemo, useRef, useState } from "preact/hooks";
import type { Me } from "../api/session";
import { useChanges } from "../changes";
import { listRuns, type RunQuery } from "../api/runLists";
import { changesBetween, EMPTY_RUNS, firstPage, polled, replaced, withMore, withNewer, type RunListState } from "../../events/runList";
import { useDrawn } from "../drawing/freeze";
import { createStore } from "../store";
import { usePoll } from "../visible";

export interface RunList {
  /** The state as it is drawn. */
  state: RunListState;
  /** Runs that have come or changed since the page was frozen. */
  held: number;
  error: unknown;
  /** The last reading failed, and older rows are shown. */
  isStale: boolean;
  showNewer(): void;
  loadMore(): void;
  reload(): void;
  /** Read one run again, after an action. */
  refresh(id: string): void;
}

/** Without a hint the list is read again, because hints may be lost. */
const PAUSE = 15_000;
/** Hints that come together need one reading. All consoles get a hint at once, so each waits for another time. */
const HINT_PAUSE = 700;
const hintPause = () => HINT_PAUSE * (1 + Math.random());

export function useRunList(query: RunQuery, me: Me | null): RunList {
  const filters = JSON.stringify(query);
  const store = useMemo(() => createStore<RunListState>(EMPTY_RUNS), [filters]);
  const { drawn, live, redraw } = useDrawn(store);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const [hints, setHints] = useState(0);
  const isSoon = useRef(false);
  useChanges(me, ({ reset, runs }) => {
    if (isSoon.current || !(reset || runs.length) || !store.get().isLoaded) return;
    isSoon.current = true;
    setTimeout(() => {
      isSoon.current = false;
      setHints((count) => count + 1);
    }, hintPause());
  });
  usePoll(PAUSE, `${filters}:${reading}:${hints}`, async (signal) => {
    try {
      const page = await listRuns(query, signal);
      const isFirst = !store.get().isLoaded;
      store.set((before) => (isFirst ? firstPage(page) : polled(before, page)));
      if (isFirst) redraw();
      setError(null);
    } catch (problem) {
      if (!signal.aborted) setError(problem);
    }
  });
  const change = (by: (before: RunListState) => RunListState) => {
    store.set(by);
    redraw();
  };
  return {
    state: drawn,
    held: changesBetween(drawn, live),
    error,
    isStale: error !== null && drawn.isLoaded,
    showNewer: () => change(withNewer),
    loadMore: () => {
      if (drawn.next === null) return;
      listRuns({ ...query, cursor: drawn.next }).then((page) => change((before) => withMore(before, page)), setError);
    },
    reload: () => setReading((count) => count + 1),
    refresh: (id) => void listRuns({ ids: [id] }).then(({ items: [run] }) => run && change((before) => replaced(before, run)), setError),
  };
}
