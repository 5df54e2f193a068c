/** Whether the page is visible. A hidden page holds no connection: a browser has six for each server. */
import { useEffect, useState } from "preact/hooks";

export function useVisible(): boolean {
  const [isVisible, setVisible] = useState(!document.hidden);
  useEffect(() => {
    const onChange = () => setVisible(!document.hidden);
    document.addEventListener("visibilitychange", onChange);
    return () => document.removeEventListener("visibilitychange", onChange);
  }, []);
  return isVisible;
}

/** Calls a function now and again after each pause, while the page is visible. The next call waits for the last one. */
export function usePoll(milliseconds: number, key: string, poll: (signal: AbortSignal) => Promise<void>): void {
  const isVisible = useVisible();
  useEffect(() => {
    if (!isVisible) return;
    const stopped = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const run = async () => {
      await poll(stopped.signal);
      if (!stopped.signal.aborted) timer = setTimeout(() => void run(), milliseconds);
    };
    void run();
    return () => {
      stopped.abort();
      clearTimeout(timer);
    };
  }, [isVisible, key]);
}
