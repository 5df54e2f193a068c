/** One stream for all tabs of a browser, which has six connections for each server.
 *
 * The tab that holds the lock reads the stream, and gives its frames to the other tabs. When it closes, the browser
 * gives the lock to another tab. That one begins where it has read to, and all other tabs read their lists again. */
import type { Frame } from "./sse";
import { pollFrames } from "./polled";
import { follow, type StreamOptions, type StreamState } from "./stream";

const MOST_RECENT = 300;

type Shared = Omit<StreamOptions, "onError">;
type Message = { kind: "frames"; frames: Frame[] } | { kind: "state"; state: StreamState } | { kind: "asked"; after: string | null } | { kind: "new leader" };

/** Returns a function that stops. `name` has to differ for different users. */
export function followTogether(name: string, options: Shared): () => void {
  const stopped = new AbortController();
  if (!("locks" in navigator) || !("BroadcastChannel" in window)) {
    // Streams of many tabs would take all connections. Without a cursor there are only hints, and lists read themselves again.
    if (options.after !== null) void pollFrames(options, stopped.signal);
    return () => stopped.abort();
  }
  const channel = new BroadcastChannel(name);
  let after = options.after;
  let state: StreamState = "connecting";
  let leads = false;
  /** What a leader has read since it began, for tabs that open meanwhile. */
  let recent: Frame[] = [];
  let begin = options.after;
  const onFrames = (frames: Frame[]) => {
    if (Number(frames.at(-1)?.id) > Number(after)) after = frames.at(-1)!.id;
    options.onFrames(frames);
  };
  const catchUp = (cursor: string | null) => {
    channel.postMessage({ kind: "state", state } satisfies Message);
    if (cursor === null) return;
    const isTooOld = Number(cursor) < Number(begin);
    const missed = recent.filter(({ id }) => Number(id) > Number(cursor));
    if (isTooOld) channel.postMessage({ kind: "new leader" } satisfies Message);
    else if (missed.length) channel.postMessage({ kind: "frames", frames: missed } satisfies Message);
  };
  const setState = (changed: StreamState) => {
    state = changed;
    options.onState(changed);
  };
  channel.onmessage = ({ data }: MessageEvent<Message>) => {
    if (data.kind === "frames") onFrames(data.frames);
    else if (data.kind === "state") setState(data.state);
    else if (data.kind === "new leader") options.onExpired();
    else if (leads) catchUp(data.after);
  };
  channel.postMessage({ kind: "asked", after } satisfies Message);
  const lead = () =>
    new Promise<void>((resolve) => {
      if (stopped.signal.aborted) return resolve();
      leads = true;
      begin = after;
      channel.postMessage({ kind: "new leader" } satisfies Message);
      const stop = follow({
        ...options,
        after,
        onFrames: (frames) => {
          onFrames(frames);
          recent = [...recent, ...frames.filter(({ id }) => id)];
          if (recent.length > MOST_RECENT) {
            begin = recent[recent.length - MOST_RECENT - 1]!.id;
            recent = recent.slice(-MOST_RECENT);
          }
          channel.postMessage({ kind: "frames", frames } satisfies Message);
        },
        onState: (changed) => {
          setState(changed);
          channel.postMessage({ kind: "state", state: changed } satisfies Message);
        },
        onExpired: () => {
          channel.postMessage({ kind: "new leader" } satisfies Message);
          options.onExpired();
        },
      });
      stopped.signal.addEventListener("abort", () => (stop(), resolve()), { once: true });
    });
  // A request that is given up before its turn is no failure.
  navigator.locks.request(name, { signal: stopped.signal }, lead).catch(() => undefined);
  return () => {
    stopped.abort();
    channel.close();
  };
}

/** Runs `lead` in as many tabs at once as there are slots; the others wait. Returns a function that stops. */
export function withSlot(name: string, slots: number, lead: (stopped: AbortSignal) => void): () => void {
  const stopped = new AbortController();
  if (!("locks" in navigator)) return () => stopped.abort();
  let isTaken = false;
  for (let slot = 1; slot <= slots; slot++) {
    const held = () => {
      if (isTaken || stopped.signal.aborted) return;
      isTaken = true;
      return new Promise<void>((resolve) => {
        stopped.signal.addEventListener("abort", () => resolve(), { once: true });
        lead(stopped.signal);
      });
    };
    navigator.locks.request(`${name}-${slot}`, { signal: stopped.signal }, held).catch(() => undefined);
  }
  return () => stopped.abort();
}
