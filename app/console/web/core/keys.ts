/** Keys of a page. A single letter works outside of text fields; `Ctrl+Enter` and `Escape` work everywhere. */
import { useLayoutEffect, useRef } from "preact/hooks";

export type Keys = Readonly<Record<string, (event: KeyboardEvent) => void>>;

const PREFERENCE = "holdfast-keys";
let pending = "";
let pendingSince = 0;
const CHORD_MILLISECONDS = 1500;

/** Single keys can be switched off (WCAG 2.1.4). */
export function keysAreOn(): boolean {
  try {
    return localStorage.getItem(PREFERENCE) !== "off";
  } catch {
    return true;
  }
}

export function switchKeys(on: boolean): void {
  try {
    if (on) localStorage.removeItem(PREFERENCE);
    else localStorage.setItem(PREFERENCE, "off");
  } catch {
    // Without storage the keys stay on.
  }
}

/** Call the function of a pressed key: `j`, `?`, `Enter`, `Ctrl+Enter`, or a chord such as `g i`. */
export function useKeys(keys: Keys): void {
  // A key that follows a keystroke at once must see what that one has changed, so no effect may lie between.
  const current = useRef(keys);
  current.current = keys;
  // An effect would run after the next paint, and a busy page gets its next key before that.
  useLayoutEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const found = current.current[nameOf(event)];
      if (found && !event.defaultPrevented) {
        event.preventDefault();
        found(event);
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
}

let named: { event: KeyboardEvent; name: string } | null = null;

/** The same for each listener of an event, although a chord is remembered only once. */
function nameOf(event: KeyboardEvent): string {
  if (named?.event !== event) named = { event, name: readName(event) };
  return named.name;
}

function readName(event: KeyboardEvent): string {
  const key = event.key.length === 1 && event.ctrlKey ? event.key.toLowerCase() : event.key;
  if (event.ctrlKey || event.metaKey) return `Ctrl+${key}`;
  if (event.altKey) return "";
  if (key === "Escape") return key;
  if (isInField(event.target)) return "";
  if (key === "Enter" && isControl(event.target)) return "";
  if (key.length === 1 && !keysAreOn()) return "";
  return chordOf(key, event.timeStamp);
}

function chordOf(key: string, now: number): string {
  if (pending && now - pendingSince < CHORD_MILLISECONDS) {
    const chord = `${pending} ${key}`;
    pending = "";
    return chord;
  }
  if (key === "g") {
    pending = key;
    pendingSince = now;
    return "";
  }
  return key;
}

function isInField(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target instanceof HTMLInputElement) return !["checkbox", "radio", "button"].includes(target.type);
  return target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement;
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && !!target.closest("button, a, summary");
}
