/** Loads a run, follows its events while the page is visible, and reads its record again when it changes. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { eventsPath, readRun, readSnapshot, type Run } from "./api/runs";
import type { Me } from "./api/session";
import { reduceRun, stateOf, type RunState } from "../events/reduceRun";
import { useDrawn } from "./drawing/freeze";
import { createStore } from "./store";
import { followInSlot } from "./streams/slottedStream";
import type { StreamState } from "./streams/stream";
import { useVisible } from "./visible";

export interface LoadedRun {
  run: Run | null;
  /** The state as it is drawn. */
  state: RunState | null;
  /** Events that have come since the page was frozen. */
  held: number;
  live: StreamState;
  error: unknown;
  reload(): void;
}

const RECORD_PAUSE = 300;

export function useRun(id: string, me: Me | null): LoadedRun {
  const store = useMemo(() => createStore<RunState | null>(null), [id]);
  const { drawn: state, live: newest, redraw } = useDrawn(store);
  const [run, setRun] = useState<Run | null>(null);
  const [live, setLive] = useState<StreamState>("connecting");
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const [loads, setLoads] = useState(0);
  const isVisible = useVisible();
  const reload = () => setReading((count) => count + 1);

  useEffect(() => {
    const stopped = new AbortController();
    setError(null);
    readSnapshot(id, stopped.signal).then(
      (snapshot) => {
        setRun(snapshot.run);
        store.set((before) => ({ ...stateOf(snapshot), seen: before?.seen ?? 0 }));
        redraw();
        setLoads((count) => count + 1);
      },
      (problem: unknown) => !stopped.signal.aborted && setError(problem),
    );
    return () => stopped.abort();
  }, [id, reading, state?.logVersion ?? 0]);

  useEffect(() => {
    if (!me || !loads || !isVisible) return;
    return followInSlot({
      path: eventsPath(id),
      query: { follow: 1 },
      after: String(store.get()!.lastSeq),
      heartbeatSeconds: me.heartbeatSeconds,
      onFrames: (frames) => store.set((before) => before && reduceRun(before, frames)),
      onState: setLive,
      onExpired: reload,
      onError: setError,
    });
    // A snapshot can be older than what the stream has brought, so the stream begins again after it.
  }, [id, me, loads, isVisible]);

  useRecord(id, state?.recordVersion ?? 0, setRun);

  return { run, state, held: (newest?.seen ?? 0) - (state?.seen ?? 0), live, error, reload };
}

/** Read the record after it has changed. Several changes need one request, and many don't put it off. */
function useRecord(id: string, version: number, onRead: (run: Run) => void): void {
  const reader = useMemo(() => ({ wanted: 0, isReading: false, stopped: new AbortController() }), [id]);
  useEffect(() => () => reader.stopped.abort(), [reader]);
  useEffect(() => {
    reader.wanted = version;
    if (!version || reader.isReading) return;
    const read = async () => {
      reader.isReading = true;
      for (let seen = 0; seen !== reader.wanted && !reader.stopped.signal.aborted; ) {
        await new Promise((resolve) => setTimeout(resolve, RECORD_PAUSE));
        seen = reader.wanted;
        // If it can't be read, the next change reads it.
        await readRun(id, reader.stopped.signal).then(onRead, () => undefined);
      }
      reader.isReading = false;
    };
    void read();
  }, [reader, version]);
}
