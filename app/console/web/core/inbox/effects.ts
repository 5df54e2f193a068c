/** What tools do: `read`, `idempotent` or `unsafe`, by name. */
import { useEffect, useState } from "preact/hooks";
import { listToolEffects } from "../api/tools";

/** Empty until it is read. A row without it lacks a badge, and its card has the effect. */
export function useEffects(): ReadonlyMap<string, string> {
  const [effects, setEffects] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    const stopped = new AbortController();
    listToolEffects(stopped.signal).then(setEffects, () => undefined);
    return () => stopped.abort();
  }, []);
  return effects;
}
