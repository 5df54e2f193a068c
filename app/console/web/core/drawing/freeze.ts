/** Freezes live drawing (WCAG 2.2.2): the page reads on, and draws what has come when its user follows again. */
import { useRef, useState } from "preact/hooks";
import { createStore, useStore, type Store } from "../store";

const frozen = createStore(false);

export interface Freeze {
  isFrozen: boolean;
  toggle(): void;
}

/** A page has one switch for all that it draws. */
export function useFreeze(): Freeze {
  return { isFrozen: useStore(frozen), toggle: () => frozen.set((isFrozen) => !isFrozen) };
}

export interface Drawn<S> {
  /** The state as it is drawn: on a frozen page, that of the moment when it was frozen. */
  drawn: S;
  live: S;
  /** Draws the state as it is now: what users do themselves is always shown. */
  redraw(): void;
}

export function useDrawn<S>(store: Store<S>): Drawn<S> {
  const live = useStore(store);
  const { isFrozen } = useFreeze();
  const [, again] = useState(0);
  const last = useRef({ store, state: live });
  if (!isFrozen || last.current.store !== store) last.current = { store, state: live };
  const redraw = () => {
    last.current = { store, state: store.get() };
    again((count) => count + 1);
  };
  return { drawn: last.current.state, live, redraw };
}
