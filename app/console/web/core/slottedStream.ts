/** The stream of a run or thread: at most two tabs of a browser read one, the others ask again and again. */
import { readFrames } from "./api/events";
import { withSlot } from "./shared";
import { follow, type StreamOptions } from "./stream";

const SLOTS = 2;
const PAUSE = 2_000;

/** Returns a function that stops. */
export function followInSlot(options: StreamOptions): () => void {
  const stopped = new AbortController();
  let after = options.after;
  let isStreaming = false;
  const poll = async () => {
    while (!stopped.signal.aborted && !isStreaming) {
      await new Promise((resolve) => setTimeout(resolve, PAUSE));
      if (stopped.signal.aborted || isStreaming) return;
      try {
        const { frames, cursor } = await readFrames(options.path, after, stopped.signal);
        if (isStreaming) return;
        after = cursor;
        options.onFrames(frames);
        options.onState("live");
      } catch {
        if (!stopped.signal.aborted) options.onState("waiting");
      }
    }
  };
  const release = withSlot("holdfast-stream", SLOTS, (given) => {
    isStreaming = true;
    const stop = follow({ ...options, after });
    given.addEventListener("abort", stop, { once: true });
  });
  void poll();
  return () => {
    stopped.abort();
    release();
  };
}
