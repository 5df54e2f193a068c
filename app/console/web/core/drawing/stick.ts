/** Keeps the end of a growing page in view, but only for a reader who is there. */
import { useLayoutEffect, useRef } from "preact/hooks";

const NEAR_PIXELS = 80;

export function useStickToBottom(version: number): void {
  const wasNear = useRef(false);
  // Measured while the page still has its old height.
  wasNear.current = isNearBottom() && version > 0;
  useLayoutEffect(() => {
    if (wasNear.current && scrollY > 0) scrollTo({ top: document.documentElement.scrollHeight });
  }, [version]);
}

function isNearBottom(): boolean {
  return document.documentElement.scrollHeight - innerHeight - scrollY < NEAR_PIXELS;
}
