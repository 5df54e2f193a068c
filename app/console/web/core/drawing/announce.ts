/** A text for screen readers, which changes at most every five seconds: a busy list must not talk all the time. */
import { useEffect, useRef, useState } from "preact/hooks";

const PAUSE = 5_000;

export function useAnnounced(text: string): string {
  const [said, say] = useState(text);
  const last = useRef(0);
  useEffect(() => {
    if (text === said) return;
    const timer = setTimeout(
      () => {
        last.current = Date.now();
        say(text);
      },
      Math.max(0, last.current + PAUSE - Date.now()),
    );
    return () => clearTimeout(timer);
  }, [text, said]);
  return said;
}
