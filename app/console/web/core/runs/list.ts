/** Loads a list of runs, and reads its first page again while the page is visible. */
import { useMemo, useRef, useState } from "preact/hooks";
import type { Me } from "../api/session";
import { useChanges } from "../changes";
import { listRuns, type RunQuery } from "../api/runLists";
import { EMPTY_RUNS, firstPage, polled, replaced, withMore, withNewer, type RunListState } from "../../events/runList";
import { createStore, useStore } from "../store";
import { usePoll } from "../visible";

export interface RunList {
  state: RunListState;
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
  const state = useStore(store);
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
      store.set((before) => (before.isLoaded ? polled(before, page) : firstPage(page)));
      setError(null);
    } catch (problem) {
      if (!signal.aborted) setError(problem);
    }
  });
  return {
    state,
    error,
    isStale: error !== null && state.isLoaded,
    showNewer: () => store.set(withNewer),
    loadMore: () => {
      if (state.next === null) return;
      listRuns({ ...query, cursor: state.next }).then((page) => store.set((before) => withMore(before, page)), setError);
    },
    reload: () => setReading((count) => count + 1),
    refresh: (id) => void listRuns({ ids: [id] }).then(({ items: [run] }) => run && store.set((before) => replaced(before, run)), setError),
  };
}
