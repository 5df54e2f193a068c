/** Loads the events of a run, and those that come later while the page is visible. */
import { useMemo, useRef } from "preact/hooks";
import { ApiError } from "../api/client";
import { readEvents, type ListedEvent } from "../api/events";
import { createStore, useStore } from "../store";
import { usePoll } from "../visible";

export interface LoadedEvents {
  events: readonly ListedEvent[];
  isLoaded: boolean;
  error: unknown;
  /** The events were old and have been removed. */
  isRemoved: boolean;
}

const PAUSE = 1_500;
const EMPTY: LoadedEvents = { events: [], isLoaded: false, error: null, isRemoved: false };

export interface EventsWanted {
  /** The newest event that the page knows of. */
  lastSeq: number;
  /** Nothing is read before. */
  isWanted: boolean;
  /** Whether long texts are whole. A list needs only their beginnings. */
  isWhole: boolean;
}

export function useEvents(runId: string, { lastSeq, isWanted, isWhole }: EventsWanted): LoadedEvents {
  const { store, position } = useMemo(() => ({ store: createStore(EMPTY), position: { cursor: null as string | null } }), [runId, isWhole]);
  const loaded = useStore(store);
  const newest = useRef(lastSeq);
  newest.current = lastSeq;
  usePoll(PAUSE, `${runId}:${isWanted}:${isWhole}`, async (signal) => {
    while (isWanted && !signal.aborted && !store.get().isRemoved && Number(position.cursor ?? -1) < newest.current) {
      try {
        const { events, cursor, hasMore } = await readEvents(runId, { cursor: position.cursor, isWhole }, signal);
        const isStuck = cursor === position.cursor;
        position.cursor = cursor;
        store.set((before) => ({ events: [...before.events, ...events], isLoaded: !hasMore || before.isLoaded, error: null, isRemoved: false }));
        if (isStuck || !hasMore) return;
      } catch (error) {
        const isRemoved = error instanceof ApiError && error.code === "cursor_expired";
        if (!signal.aborted) store.set((before) => ({ ...before, error, isRemoved }));
        return;
      }
    }
  });
  return loaded;
}
