/** Copies a thread up to a message, and leads to the copy. */
import { useState } from "preact/hooks";
import type { Message } from "../../core/api/messages";
import { forkRequest, forkThread } from "../../core/api/runActions";
import { shortened } from "../../core/text";
import { pageUrl } from "../../core/url";
import { ActionDialog } from "./ActionDialog";

interface ForkDialogProps {
  threadId: string;
  messages: readonly Message[];
  onClose(): void;
}

const SHOWN_CHARACTERS = 70;

export function ForkDialog({ threadId, messages, onClose }: ForkDialogProps) {
  const ends = forkPoints(messages);
  const [seq, setSeq] = useState(ends[0]?.seq ?? 0);
  const [title, setTitle] = useState("");
  return (
    <ActionDialog
      title="Fork the thread"
      name="Make the copy"
      request={forkRequest(threadId, seq, title.trim())}
      send={async (request, key) => location.assign(pageUrl.thread(await forkThread(request, key)))}
      onClose={onClose}
    >
      <p>The new thread begins with a copy of the messages. This thread stays as it is.</p>
      <label class="field">
        Last message of the copy
        <select value={String(seq)} onChange={(event) => setSeq(Number(event.currentTarget.value))}>
          {ends.map((message) => (
            <option key={message.seq} value={String(message.seq)}>
              {optionOf(message)}
            </option>
          ))}
        </select>
      </label>
      <label class="field">
        <span>
          Title <span class="quiet">(optional)</span>
        </span>
        <input value={title} maxLength={200} onInput={(event) => setTitle(event.currentTarget.value)} />
      </label>
    </ActionDialog>
  );
}

/** Messages at which a copy may end, newest first: after a call must come its result. */
export function forkPoints(messages: readonly Message[]): Message[] {
  return messages.filter((message) => message.role !== "system" && !message.calls.length && !message.rolledBackBy).reverse();
}

function optionOf({ seq, role, text }: Message): string {
  const who = role === "user" ? "User" : role === "tool" ? "Result" : "Agent";
  return `${seq} · ${who}: ${shortened(text.replace(/\s+/g, " "), SHOWN_CHARACTERS).text}`;
}
