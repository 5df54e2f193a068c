/** The stream of a run or thread: at most two tabs of a browser read one, the others ask again and again. */
import { pollFrames } from "./polled";
import { withSlot } from "./shared";
import { follow, type StreamOptions } from "./stream";

const SLOTS = 2;

/** Returns a function that stops. */
export function followInSlot(options: StreamOptions): () => void {
  const stopped = new AbortController();
  let after = options.after;
  let isStreaming = false;
  const release = withSlot("holdfast-stream", SLOTS, (given) => {
    isStreaming = true;
    const stop = follow({ ...options, after });
    given.addEventListener("abort", stop, { once: true });
  });
  void pollFrames(options, stopped.signal, { isOver: () => isStreaming, onCursor: (cursor) => (after = cursor) });
  return () => {
    stopped.abort();
    release();
  };
}
