/** Loads a thread, follows the events of all its runs while the page is visible, and reads what no event tells. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { listPending, readThreadSnapshot, threadEventsPath, type PendingInput, type Thread } from "../api/threads";
import type { Message } from "../api/messages";
import type { Run } from "../api/runs";
import type { Me } from "../api/session";
import { reduceRun, stateOf, type RunState } from "../../events/reduceRun";
import { useDrawn } from "../drawing/freeze";
import { createStore } from "../store";
import { followInSlot } from "../streams/slottedStream";
import type { StreamState } from "../streams/stream";
import { useVisible } from "../visible";

export interface LoadedThread {
  thread: Thread | null;
  /** The run that occupies the thread. */
  run: Run | null;
  /** The state as it is drawn. */
  state: RunState | null;
  /** Events that have come since the page was frozen. */
  held: number;
  pending: readonly PendingInput[];
  live: StreamState;
  error: unknown;
  reload(): void;
}

const RECORD_PAUSE = 300;

export function useThread(id: string | null, me: Me | null): LoadedThread {
  const store = useMemo(() => createStore<RunState | null>(null), [id]);
  const { drawn: state, live: newestState, redraw } = useDrawn(store);
  const [record, setRecord] = useState<{ thread: Thread; run: Run | null } | null>(null);
  const [pending, setPending] = useState<readonly PendingInput[]>([]);
  const [live, setLive] = useState<StreamState>("connecting");
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const isVisible = useVisible();
  const reload = () => setReading((count) => count + 1);
  const isLoaded = state !== null;

  useEffect(() => {
    if (!id) return;
    const stopped = new AbortController();
    const read = async () => {
      try {
        const [snapshot, inputs] = await Promise.all([readThreadSnapshot(id, stopped.signal), listPending(id, stopped.signal)]);
        setRecord({ ...snapshot, thread: { ...snapshot.thread, firstWords: firstWordsIn(snapshot.messages) } });
        setPending(inputs);
        setError(null);
        store.set((before) => newest(before, stateOf(snapshot)));
        redraw();
      } catch (problem) {
        if (!stopped.signal.aborted) setError(problem);
      }
    };
    // Several events that come together need one reading.
    const timer = setTimeout(() => void read(), isLoaded ? RECORD_PAUSE : 0);
    return () => {
      clearTimeout(timer);
      stopped.abort();
    };
  }, [id, reading, state?.recordVersion, state?.logVersion]);

  useEffect(() => {
    if (!id || !me || !isLoaded || !isVisible) return;
    return followInSlot({
      path: threadEventsPath(id),
      after: String(store.get()!.lastSeq),
      heartbeatSeconds: me.heartbeatSeconds,
      onFrames: (frames) => store.set((before) => before && reduceRun(before, frames)),
      onState: setLive,
      onExpired: reload,
      onError: setError,
    });
  }, [id, me, isLoaded, isVisible]);

  return { thread: record?.thread ?? null, run: record?.run ?? null, state, held: (newestState?.seen ?? 0) - (state?.seen ?? 0), pending, live, error, reload };
}

/** A snapshot without the beginning of the thread has other first words, so it gives none. */
function firstWordsIn(messages: readonly Message[]): string {
  const [first] = messages;
  return first?.seq === 1 && first.role === "user" ? first.text : "";
}

/** A snapshot that is older than the events that were seen gives its messages only if nothing is being streamed. */
export function newest(before: RunState | null, read: RunState): RunState {
  if (!before) return read;
  const versions = { recordVersion: before.recordVersion, logVersion: before.logVersion, seen: before.seen };
  if (read.lastSeq >= before.lastSeq) return { ...read, ...versions };
  const known = new Set(before.messages.map(({ seq }) => seq));
  const missing = read.messages.filter(({ seq }) => !known.has(seq));
  if (!missing.length) return before;
  const messages = [...before.messages, ...missing].sort((one, other) => one.seq - other.seq);
  return { ...before, messages, results: { ...read.results, ...before.results } };
}
