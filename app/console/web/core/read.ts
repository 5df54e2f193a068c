/** Reads something when the page needs it, again when its key changes, and once more after an error if the user asks. */
import { useEffect, useState } from "preact/hooks";

export interface Reading<T> {
  /** What was read last; it stays while it is read again. */
  value: T | undefined;
  error: unknown;
  retry(): void;
}

/** Nothing is read while `isWanted` is false. */
export function useRead<T>(read: (signal: AbortSignal) => Promise<T>, key: string, isWanted = true): Reading<T> {
  const [value, setValue] = useState<T | undefined>(undefined);
  const [error, setError] = useState<unknown>(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    if (!isWanted) return;
    const stopped = new AbortController();
    setError(null);
    read(stopped.signal).then(
      (found) => !stopped.signal.aborted && setValue(() => found),
      (problem: unknown) => !stopped.signal.aborted && setError(problem),
    );
    return () => stopped.abort();
  }, [key, tries, isWanted]);
  return { value, error, retry: () => setTries((count) => count + 1) };
}
