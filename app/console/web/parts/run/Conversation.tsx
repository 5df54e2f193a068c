/** The messages of a run, with calls folded into them, and the answer that is being streamed. */
import { useState } from "preact/hooks";
import type { Me } from "../../core/api/session";
import type { Message } from "../../core/api/messages";
import type { Ticket } from "../../core/api/tickets";
import { memo } from "../../core/memo";
import { useStickToBottom } from "../../core/drawing/stick";
import { NO_DECISIONS, type Decisions } from "../../core/runs/decisions";
import type { OpenMessage, RunState } from "../../events/reduceRun";
import { Call } from "./Call";
import { Images } from "./Images";
import { Markdown } from "../Markdown";
import { SafeText } from "../Text";
import { TicketPlace } from "../tickets/TicketPlace";

const SHOWN_MESSAGES = 500;
/** Longer answers are drawn as Markdown only when they are complete. */
const STREAMED_MARKDOWN = 20_000;

interface ConversationProps {
  state: RunState;
  me: Me | null;
  runId: string;
  /** Who decided about calls, by their ids. */
  decisions?: Decisions;
}

export function Conversation({ state, me, runId, decisions = NO_DECISIONS }: ConversationProps) {
  const [count, setCount] = useState(SHOWN_MESSAGES);
  useStickToBottom(state.lastSeq);
  const spoken = state.messages.filter(({ role }) => role !== "tool" && role !== "system");
  const shown = spoken.slice(-count);
  const calls = new Set(spoken.flatMap((message) => message.calls.map(({ id }) => id)));
  const openTickets = state.tickets.filter(({ status }) => status === "open");
  return (
    <div class="conversation" role="log" aria-label="Conversation" aria-live="off">
      {shown.length < spoken.length && (
        <button class="link" onClick={() => setCount(count + SHOWN_MESSAGES)}>
          {spoken.length - shown.length} earlier messages
        </button>
      )}
      {shown.map((message) => (
        <MessageView
          key={message.id}
          message={message}
          results={state.results}
          output={state.output}
          tickets={message.calls.length ? state.tickets : NO_TICKETS}
          decisions={message.calls.length ? decisions : NO_DECISIONS}
          me={me}
          isOfRun={message.runId === null || message.runId === runId}
        />
      ))}
      {state.open && <Streamed open={state.open} />}
      {openTickets
        .filter(({ callId }) => callId === null || !calls.has(callId))
        .map((ticket) => (
          <TicketPlace key={ticket.id} ticket={ticket} me={me} />
        ))}
    </div>
  );
}

const NO_TICKETS: Ticket[] = [];

interface MessageViewProps {
  message: Message;
  results: RunState["results"];
  output: RunState["output"];
  tickets: Ticket[];
  decisions: Decisions;
  me: Me | null;
  isOfRun: boolean;
}

const Body = memo(({ message }: { message: Message }) =>
  message.role === "assistant" ? (
    <Markdown text={message.text} />
  ) : (
    <p class="plain-text">
      <SafeText text={message.text} />
    </p>
  ),
);

function MessageView({ message, results, output, tickets, decisions, me, isOfRun }: MessageViewProps) {
  return (
    <article class={`message ${message.role} ${isOfRun ? "" : "earlier"}`}>
      <p class="who row">
        {message.role === "user" ? "User" : "Agent"}
        {message.cutShort && <span class="badge warn">cut short: {message.cutShort}</span>}
        {message.rolledBackBy && <span class="badge">rolled back</span>}
        {message.isHidden && <span class="badge">not shown to users</span>}
      </p>
      {message.text && <Body message={message} />}
      {message.media.length > 0 && <Images media={message.media} />}
      {message.calls.map((call) => {
        const ticket = tickets.findLast(({ callId }) => callId === call.id);
        return (
          <Call key={call.id} call={call} result={results[call.id]} output={output[call.id] ?? ""} decision={ticket ? undefined : decisions[call.id]}>
            {ticket && <TicketPlace ticket={ticket} me={me} />}
          </Call>
        );
      })}
    </article>
  );
}

/** `aria-busy` keeps screen readers from reading every token. */
function Streamed({ open }: { open: OpenMessage }) {
  const isEmpty = !open.text && !open.reasoning && !open.calls.length;
  return (
    <article class="message assistant" aria-busy="true" data-streaming>
      <p class="who">Agent</p>
      {isEmpty && <p class="quiet">…</p>}
      {open.reasoning && !open.text && (
        <p class="plain-text quiet small">
          <SafeText text={open.reasoning} />
        </p>
      )}
      {open.text.length > STREAMED_MARKDOWN ? (
        <p class="plain-text">
          <SafeText text={open.text} />
        </p>
      ) : (
        open.text && <Markdown text={open.text} />
      )}
      {open.calls.map((call) => (
        <p key={call.id} class="call-head">
          <code>{call.name}</code>{" "}
          <span class="quiet small">
            <SafeText text={call.text} />
          </span>
        </p>
      ))}
    </article>
  );
}
