/** Loads the events of a run, and those that come later while the page is visible. */
import { useMemo, useRef, useState } from "preact/hooks";
import { readEvents, type ListedEvent } from "../api/events";
import { createStore, useStore } from "../store";
import { usePoll } from "../visible";

export interface LoadedEvents {
  events: readonly ListedEvent[];
  isLoaded: boolean;
  error: unknown;
}

const PAUSE = 1_500;
const EMPTY: LoadedEvents = { events: [], isLoaded: false, error: null };

/** `lastSeq` is the newest event that the page knows of; nothing is read before `isWanted`. */
export function useEvents(runId: string, lastSeq: number, isWanted: boolean): LoadedEvents {
  const store = useMemo(() => createStore(EMPTY), [runId]);
  const loaded = useStore(store);
  const newest = useRef(lastSeq);
  newest.current = lastSeq;
  const [position] = useState<{ cursor: string | null }>({ cursor: null });
  usePoll(PAUSE, `${runId}:${isWanted}`, async (signal) => {
    while (isWanted && !signal.aborted && Number(position.cursor ?? -1) < newest.current) {
      try {
        const { events, cursor, hasMore } = await readEvents(runId, position.cursor, signal);
        const isStuck = cursor === position.cursor;
        position.cursor = cursor;
        store.set((before) => ({ events: [...before.events, ...events], isLoaded: !hasMore || before.isLoaded, error: null }));
        if (isStuck || !hasMore) return;
      } catch (error) {
        if (!signal.aborted) store.set((before) => ({ ...before, error }));
        return;
      }
    }
  });
  return loaded;
}
