/** Asks for events again and again, where a page can't hold a stream. */
import { ApiError } from "../api/client";
import { readFrames } from "../api/events";
import type { StreamOptions } from "./stream";

const PAUSE = 2_000;

/** Until `isOver`. `onCursor` gets each place up to which was read. */
export async function pollFrames(
  options: Omit<StreamOptions, "heartbeatSeconds">,
  stopped: AbortSignal,
  { isOver = () => false, onCursor = () => undefined }: { isOver?: () => boolean; onCursor?: (cursor: string) => void } = {},
): Promise<void> {
  let after = options.after;
  const isDone = () => stopped.aborted || isOver();
  while (!isDone()) {
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (isDone()) return;
    try {
      const { frames, cursor } = await readFrames(options.path, after, stopped);
      if (isDone()) return;
      after = cursor;
      onCursor(cursor);
      options.onFrames(frames);
      options.onState("live");
    } catch (error) {
      if (isDone()) return;
      if (error instanceof ApiError && error.status === 410) return options.onExpired();
      options.onState("waiting");
    }
  }
}
