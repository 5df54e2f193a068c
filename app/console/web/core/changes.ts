/** Hints that runs or tickets have changed, from one stream for all tabs. */
import { useEffect, useRef } from "preact/hooks";
import { changesOf, CHANGES_PATH, type Changes } from "./api/changes";
import type { Me } from "./api/session";
import { followTogether } from "./streams/shared";
import { useVisible } from "./visible";

/** Calls `onChanges` for each hint while the page is visible. */
export function useChanges(me: Me | null, onChanges: (changes: Changes) => void): void {
  const isVisible = useVisible();
  const current = useRef(onChanges);
  current.current = onChanges;
  useEffect(() => {
    if (!me || !isVisible) return;
    return followTogether(streamName("changes", me), {
      path: CHANGES_PATH,
      after: null,
      heartbeatSeconds: me.heartbeatSeconds,
      onFrames: (frames) => frames.forEach((frame) => current.current(changesOf(frame))),
      onState: () => undefined,
      onExpired: () => current.current({ reset: true, tickets: true, runs: [] }),
    });
  }, [me, isVisible]);
}

/** Tabs of different users share no stream. */
export function streamName(stream: string, me: Me): string {
  return `holdfast-${stream}:${me.tenant}:${me.subject}`;
}
