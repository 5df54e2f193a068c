/** Loads the list of threads, and reads its first page again after hints. No row moves: new threads wait for a click. */
import { useEffect, useRef, useState } from "preact/hooks";
import { listThreads, type Thread } from "../api/threads";
import type { Me } from "../api/session";
import { useChanges } from "../changes";

export interface ThreadList {
  items: readonly Thread[] | null;
  next: string | null;
  /** Threads of the first page that the list doesn't show yet. */
  newer: number;
  error: unknown;
  showNewer(): void;
  loadMore(): void;
  reload(): void;
}

interface Loaded {
  items: readonly Thread[];
  next: string | null;
  newest: { items: readonly Thread[]; next: string | null };
}

/** Hints that come together need one reading. All consoles get a hint at once, so each waits for another time. */
const HINT_PAUSE = 1_500;

export function useThreads(words: string, me: Me | null): ThreadList {
  const [list, setList] = useState<Loaded | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const [hints, setHints] = useState(0);
  const isSoon = useRef(false);
  useEffect(() => {
    const stopped = new AbortController();
    setError(null);
    listThreads(words, null, stopped.signal).then(
      (page) => setList({ ...page, newest: page }),
      (problem: unknown) => !stopped.signal.aborted && setError(problem),
    );
    return () => stopped.abort();
  }, [words, reading]);
  useEffect(() => {
    if (!hints) return;
    const stopped = new AbortController();
    // If it can't be read, the rows stay until the next hint.
    listThreads(words, null, stopped.signal).then((page) => setList((before) => before && updated(before, page)), () => undefined);
    return () => stopped.abort();
  }, [hints]);
  useChanges(me, ({ reset, runs }) => {
    if (isSoon.current || !(reset || runs.length)) return;
    isSoon.current = true;
    setTimeout(() => {
      isSoon.current = false;
      setHints((count) => count + 1);
    }, HINT_PAUSE * (1 + Math.random()));
  });
  const shown = new Set(list?.items.map(({ id }) => id));
  return {
    items: list?.items ?? null,
    next: list?.next ?? null,
    newer: list?.newest.items.filter(({ id }) => !shown.has(id)).length ?? 0,
    error,
    showNewer: () => setList((before) => before && { ...before.newest, newest: before.newest }),
    loadMore: () => {
      if (!list?.next) return;
      listThreads(words, list.next).then(
        ({ items, next }) => setList((before) => before && { ...before, items: [...before.items, ...items.filter(({ id }) => !shown.has(id))], next }),
        setError,
      );
    },
    reload: () => setReading((count) => count + 1),
  };
}

/** The same rows in their places, as the newest page tells of them. */
function updated(before: Loaded, newest: Loaded["newest"]): Loaded {
  const found = new Map(newest.items.map((thread) => [thread.id, thread]));
  return { ...before, items: before.items.map((thread) => found.get(thread.id) ?? thread), newest };
}
