/** The buttons of a ticket, and the form of the chosen decision. A first press chooses, a second decides. */
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { decisionRequest, type Action, type Answer, type TicketDetail } from "../../core/api/tickets";
import type { Json, JsonObject } from "../../core/api/messages";
import type { Me } from "../../core/api/session";
import { choicesOf, type Choice } from "../../core/choices";
import { DecisionIds, NO_PROBLEMS, sendDecision, type Outcome } from "../../core/decisions";
import { newId } from "../../core/ids";
import { useKeys } from "../../core/keys";
import { CopyAsCurl } from "../CopyAsCurl";
import { AnswerFields, firstDraft, isComplete, labelOf, type Draft } from "./AnswerFields";

interface DecisionFormProps {
  ticket: TicketDetail;
  me: Me | null;
  /** Whether the whole arguments were shown. */
  wasShown: boolean;
  onOutcome(outcome: Outcome): void;
}

export function DecisionForm({ ticket, me, wasShown, onOutcome }: DecisionFormProps) {
  const choices = useMemo(() => choicesOf(ticket), [ticket]);
  const [chosen, choose] = useState<Choice | null>(null);
  const [draft, setDraft] = useState<Draft>(firstDraft(ticket, null));
  const [isBusy, setBusy] = useState(false);
  const [refused, setRefused] = useState("");
  const [problems, setProblems] = useState(NO_PROBLEMS);
  const ids = useMemo(() => new DecisionIds(), [ticket.id]);
  const form = useRef<HTMLFormElement>(null);
  const barrier = barrierOf(ticket, me);

  const hasVoted = ticket.votes.some(({ by }) => by === me?.subject);
  const isOff = ({ action }: Choice) =>
    barrier !== null || (!wasShown && RUNS_CALL.has(action)) || (hasVoted && ALLOWS_CALL.has(action));

  const arm = (choice: Choice) => {
    if (isBusy || isOff(choice)) return;
    if (chosen?.action === choice.action) return;
    choose(choice);
    setDraft(firstDraft(ticket, choice.action));
    setRefused("");
    setProblems(NO_PROBLEMS);
  };
  // The field gets the focus before the next key. Otherwise the first letters of a reason act as keys of the page.
  useLayoutEffect(() => {
    if (chosen) form.current?.querySelector<HTMLElement>("textarea, input, select, button.send")?.focus();
  }, [chosen?.action]);

  const send = async () => {
    if (!chosen || isBusy || !isComplete(ticket, chosen.action, draft)) return;
    setBusy(true);
    setRefused("");
    const outcome = await sendDecision(ticket, answerOf(chosen, draft), ids);
    setBusy(false);
    if (outcome.kind === "refused") setProblems(outcome.problems);
    if (outcome.kind === "refused" || outcome.kind === "not_sent") setRefused(outcome.text);
    else choose(null);
    onOutcome(outcome);
  };
  // What the server said was about the value before.
  const change = (changed: (draft: Draft) => Draft) => {
    setDraft(changed);
    setProblems(NO_PROBLEMS);
  };
  const byKey = Object.fromEntries(choices.map((choice) => [choice.key, () => arm(choice)]));
  // Another card of the page, or its composer, may be what the key is for.
  useKeys({ ...byKey, ...(chosen ? { "Ctrl+Enter": () => void send(), Escape: () => choose(null) } : {}) });

  return (
    <div class="decide">
      {barrier && <p class="notice warn">{barrier}</p>}
      {hasVoted && <p class="notice">You have said yes. You can still reject it.</p>}
      <div class="row" role="group" aria-label="Decisions">
        {choices.map((choice) => (
          <button
            key={choice.action}
            class={choice.tone}
            aria-pressed={chosen?.action === choice.action}
            disabled={isBusy || isOff(choice)}
            onClick={() => arm(choice)}
          >
            {choice.label} <kbd>{choice.key}</kbd>
          </button>
        ))}
        {!wasShown && <span class="quiet small">Show all arguments first.</span>}
      </div>
      {chosen && (
        <form
          ref={form}
          class="stack"
          aria-label={chosen.label}
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
        >
          <p>{chosen.effect}</p>
          <AnswerFields ticket={ticket} action={chosen.action} draft={draft} problems={problems} onChange={change} />
          {refused && (
            <p class="problem" role="alert">
              {refused}
            </p>
          )}
          <div class="row">
            <button
              class={`send ${chosen.tone === "danger" ? "danger armed" : "primary"}`}
              disabled={isBusy || !isComplete(ticket, chosen.action, draft)}
            >
              {isBusy ? "Sending …" : labelOf(ticket, chosen, draft)} <kbd>Ctrl+Enter</kbd>
            </button>
            <button type="button" class="plain" disabled={isBusy} onClick={() => choose(null)}>
              Back <kbd>Esc</kbd>
            </button>
            <CopyAsCurl request={() => decisionRequest(ticket, answerOf(chosen, draft), newId())} />
          </div>
        </form>
      )}
    </div>
  );
}

/** Why this person can't decide, in words; null if they can. */
function barrierOf(ticket: TicketDetail, me: Me | null): string | null {
  if (me && !me.may("decisions:write")) return "Your key lacks the scope decisions:write, so you can only read.";
  if (!ticket.mayDecide.allowed) return `You can’t decide this: ${ticket.mayDecide.reason}.`;
  return null;
}

/** These need the whole arguments to have been shown. */
const RUNS_CALL = new Set<Action>(["approve", "edit"]);
/** One person gives such an answer once; another one has to agree. */
const ALLOWS_CALL = new Set<Action>(["approve", "edit", "respond"]);

function answerOf({ action }: Choice, draft: Draft): Answer {
  const reason = draft.reason.trim();
  return {
    action,
    ...(action === "edit" ? { arguments: draft.value as JsonObject } : {}),
    ...(action === "respond" ? { result: draft.value as Json } : {}),
    ...(reason ? { reason } : {}),
    ...(draft.remember ? { remember: draft.remember } : {}),
  };
}
