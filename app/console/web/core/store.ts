/** The state of a page: one value that is replaced, and drawn at most once per animation frame. */
import { useEffect, useState } from "preact/hooks";

export interface Store<S> {
  get(): S;
  set(change: (state: S) => S): void;
  subscribe(listener: () => void): () => void;
}

export function createStore<S>(initial: S): Store<S> {
  let state = initial;
  let isScheduled = false;
  const listeners = new Set<() => void>();
  const notify = () => {
    isScheduled = false;
    for (const listener of [...listeners]) listener();
  };
  return {
    get: () => state,
    set(change) {
      const next = change(state);
      if (next === state) return;
      state = next;
      if (!isScheduled) {
        isScheduled = true;
        // A hidden page gets no animation frames, and its title still shows what is new.
        if (document.hidden) setTimeout(notify, 250);
        else requestAnimationFrame(notify);
      }
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** Redraws the component when the state has changed. */
export function useStore<S>(store: Store<S>): S {
  const [state, setState] = useState(store.get);
  useEffect(() => {
    setState(store.get());
    return store.subscribe(() => setState(store.get()));
  }, [store]);
  return state;
}
