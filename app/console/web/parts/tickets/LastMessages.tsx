/** The end of the conversation before a ticket: why the call is wanted. */
import { useState } from "preact/hooks";
import type { Message } from "../../core/api/messages";
import { shortened } from "../../core/text";
import { Markdown } from "../Markdown";
import { SafeText } from "../Text";

const SHOWN_MESSAGES = 3;
const SHOWN_LENGTH = 600;

export function LastMessages({ messages }: { messages: Message[] }) {
  const [all, showAll] = useState(false);
  const spoken = messages.filter(({ text, role }) => text && (role === "user" || role === "assistant"));
  const shown = all ? spoken : spoken.slice(-SHOWN_MESSAGES);
  if (!shown.length) return null;
  return (
    <section aria-label="Last messages">
      <h2>Last messages</h2>
      <div class="said">
        {shown.length < spoken.length && (
          <p>
            <button class="link small" onClick={() => showAll(true)}>
              {spoken.length - shown.length} earlier
            </button>
          </p>
        )}
        {shown.map((message) => (
          <Said key={message.id} message={message} />
        ))}
      </div>
    </section>
  );
}

function Said({ message }: { message: Message }) {
  const [isWhole, showWhole] = useState(false);
  const { text, isCut } = shortened(message.text, isWhole ? Infinity : SHOWN_LENGTH);
  return (
    <div>
      <p class="who">{message.role === "user" ? "User" : "Agent"}</p>
      {message.role === "assistant" ? (
        <Markdown text={text} />
      ) : (
        <p class="plain-text">
          <SafeText text={text} />
        </p>
      )}
      {isCut && (
        <button class="link small" onClick={() => showWhole(true)}>
          Show all
        </button>
      )}
    </div>
  );
}
