/** The list of keys. */
import { useState } from "preact/hooks";
import { keysAreOn, switchKeys } from "../core/keys";
import { notifications, switchNotifications } from "../core/inbox/notify";
import { Dialog } from "./Dialog";

const KEYS: readonly [string, string][] = [
  ["?", "This list"],
  ["g i", "Inbox"],
  ["g r", "Runs"],
  ["g t", "Threads"],
  ["g a", "Agents"],
  ["g m", "Memory"],
  ["g y", "System"],
  ["g s", "Start a run"],
  ["Ctrl+K", "Open an id or a page"],
  ["c", "Write a message"],
  ["1 … 7", "Tabs of a run"],
  ["[  ]", "Replay: event before and after"],
  ["j  k", "Next and previous row"],
  ["/", "First filter"],
  ["a  e  s  r  d", "Choose approve, edit, respond, reject, drop"],
  ["Ctrl+Enter", "Send the chosen decision, or the form"],
  ["p", "Freeze live changes, and follow them again"],
  [".", "Show what is new"],
  ["n", "Next open ticket"],
  ["x", "Select the ticket, to decide several at once"],
  ["Escape", "Close, or go back a step"],
];

export function Help({ onClose }: { onClose(): void }) {
  const [isOn, setOn] = useState(keysAreOn);
  const [told, setTold] = useState(notifications);
  const toggle = () => {
    switchKeys(!isOn);
    setOn(!isOn);
  };
  return (
    <Dialog title="Keys" onClose={onClose}>
      <dl class="keys">
        {KEYS.map(([keys, text]) => (
          <div key={keys}>
            <dt>
              {keys.split("  ").map((key) => (
                <kbd key={key}>{key}</kbd>
              ))}
            </dt>
            <dd>{text}</dd>
          </div>
        ))}
      </dl>
      <label class="row">
        <input type="checkbox" checked={isOn} onChange={toggle} /> Use single letters as keys
      </label>
      {told !== "unsupported" && (
        <label class="row">
          <input type="checkbox" checked={told === "on"} disabled={told === "denied"} onChange={() => void switchNotifications(told !== "on").then(setTold)} />
          {told === "denied" ? "This browser blocks notifications of this page" : "Notify me of new tickets while the page is hidden"}
        </label>
      )}
    </Dialog>
  );
}
