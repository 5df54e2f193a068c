/** Follows an event stream with `fetch`, and reconnects after the last event that it has seen.
 *
 * `EventSource` would hide statuses, comments and `Retry-After`. */
import { apiUrl, errorOf, toSignIn, type ApiError } from "../api/client";
import { SseParser, type Frame } from "./sse";

export type StreamState = "connecting" | "live" | "waiting" | "ended";

export interface StreamOptions {
  path: string;
  query?: Record<string, string | number>;
  /** The id of the last event that is known. */
  after: string | null;
  heartbeatSeconds: number;
  onFrames(frames: Frame[]): void;
  onState(state: StreamState): void;
  /** Events after the cursor are no longer kept: read the snapshot again. */
  onExpired(): void;
  /** The stream is not here, or not for this user. */
  onError?(error: ApiError): void;
}

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15_000;
const MISSED_HEARTBEATS = 3;
/** A busy server is late at times, and each reconnect costs it more. */
const SHORTEST_SILENCE = 5_000;

/** Returns a function that stops following. */
export function follow(options: StreamOptions): () => void {
  const stopped = new AbortController();
  let connection = new AbortController();
  const onShow = (event: PageTransitionEvent) => {
    if (event.persisted) connection.abort();
  };
  addEventListener("pageshow", onShow);
  void run(options, stopped.signal, (made) => (connection = made));
  return () => {
    removeEventListener("pageshow", onShow);
    stopped.abort();
    connection.abort();
  };
}

async function run(
  options: StreamOptions,
  stopped: AbortSignal,
  opened: (connection: AbortController) => void,
): Promise<void> {
  let after = options.after;
  let pause = FIRST_PAUSE;
  const seen = (id: string) => {
    after = id;
    pause = FIRST_PAUSE;
  };
  while (!stopped.aborted) {
    const connection = new AbortController();
    opened(connection);
    options.onState("connecting");
    const outcome = await connect(options, after, connection, seen);
    if (stopped.aborted) return;
    if (outcome === "ended") return options.onState("ended");
    if (outcome === "expired") return options.onExpired();
    options.onState("waiting");
    await sleep(pause * (0.5 + Math.random() / 2), stopped);
    pause = Math.min(LONGEST_PAUSE, pause * 2);
  }
}

async function connect(
  options: StreamOptions,
  after: string | null,
  connection: AbortController,
  seen: (id: string) => void,
): Promise<"ended" | "expired" | "again"> {
  const silence = Math.max(SHORTEST_SILENCE, options.heartbeatSeconds * MISSED_HEARTBEATS * 1000);
  let timer = setTimeout(() => connection.abort(), silence + 5_000);
  try {
    const response = await fetch(apiUrl(options.path, options.query), {
      headers: { Accept: "text/event-stream", ...(after === null ? {} : { "Last-Event-ID": after }) },
      credentials: "same-origin",
      cache: "no-store",
      signal: connection.signal,
    });
    if (response.status === 204) return "ended";
    if (!response.ok || !response.body) return await refused(options, response);
    options.onState("live");
    const parser = new SseParser();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      clearTimeout(timer);
      timer = setTimeout(() => connection.abort(), silence);
      const { done, value } = await reader.read();
      if (done) return "again";
      const frames = parser.push(value);
      const last = frames.at(-1);
      if (last) {
        give(frames, options);
        if (last.id) seen(last.id);
      }
    }
  } catch {
    return "again";
  } finally {
    clearTimeout(timer);
  }
}

/** A defect of the page must not look like a lost connection. */
function give(frames: Frame[], options: StreamOptions): void {
  try {
    options.onFrames(frames);
  } catch (error) {
    reportError(error);
  }
}

async function refused(options: StreamOptions, response: Response): Promise<"ended" | "expired" | "again"> {
  const error = await errorOf(response);
  if (response.status === 410) return "expired";
  if (response.status === 401) {
    toSignIn();
    return "ended";
  }
  // Other refusals pass: a server stops, or is busy. The page says that it reconnects.
  if (response.status !== 403 && response.status !== 404) return "again";
  options.onError?.(error);
  return "ended";
}

function sleep(milliseconds: number, stopped: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    stopped.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
  });
}
