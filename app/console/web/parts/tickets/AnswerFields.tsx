/** The fields of one decision: new arguments, a result, a reason, and whether to remember it. */
import type { Action, TicketDetail } from "../../core/api/tickets";
import type { Json, JsonObject } from "../../core/api/messages";
import { editSchema, type Choice } from "../../core/choices";
import type { Problems } from "../../core/decisions";
import { changes, isObject } from "../../core/json";
import { blank, fieldOf } from "../../core/schema";
import { Diff } from "../Diff";
import { SchemaForm } from "../SchemaForm";

/** What is typed so far. */
export interface Draft {
  value: Json;
  isWrong: boolean;
  reason: string;
  remember: string;
}

const ANY: JsonObject = {};
const SCOPES: readonly [string, string][] = [
  ["", "Only this call"],
  ["run", "Similar calls of this run"],
  ["thread", "Similar calls on this thread"],
  ["agent", "Similar calls of this agent, everywhere"],
];

export function firstDraft(ticket: TicketDetail, action: Action | null): Draft {
  return { value: firstValue(ticket, action), isWrong: false, reason: "", remember: "" };
}

function firstValue(ticket: TicketDetail, action: Action | null): Json {
  if (action === "edit") {
    if (ticket.kind !== "limit") return ticket.arguments;
    return isObject(ticket.arguments) ? { raise_by: ticket.arguments["raise_by"] ?? 1 } : {};
  }
  const schema = ticket.responseSchema;
  return action === "respond" && schema ? blank(fieldOf(schema, schema), schema) : "";
}

export function isComplete(ticket: TicketDetail, action: Action, draft: Draft): boolean {
  if (draft.isWrong) return false;
  if (action === "edit") return ticket.kind === "limit" || changes(ticket.arguments, draft.value).length > 0;
  if (action === "respond" && !ticket.responseSchema) return draft.value !== "";
  return true;
}

/** The label of the button that sends the decision. */
export function labelOf(ticket: TicketDetail, choice: Choice, draft: Draft): string {
  if (choice.action === "edit" && ticket.kind === "limit") return "Raise the limit";
  if (choice.action === "edit") {
    const count = changes(ticket.arguments, draft.value).length;
    return `Run with ${count} ${count === 1 ? "change" : "changes"}`;
  }
  if (choice.action === "respond") return ticket.kind === "outcome_unknown" ? "Use this result" : "Send the answer";
  return choice.action === "approve" && ticket.kind === "approval" ? `Approve and run ${ticket.tool}` : choice.label;
}

interface AnswerFieldsProps {
  ticket: TicketDetail;
  action: Action;
  draft: Draft;
  /** What the server found wrong with the value. */
  problems: Problems;
  /** One event may change two fields, so each change begins with the newest draft. */
  onChange(change: (draft: Draft) => Draft): void;
}

export function AnswerFields({ ticket, action, draft, problems, onChange }: AnswerFieldsProps) {
  const set = (change: Partial<Draft>) => onChange((newest) => ({ ...newest, ...change }));
  return (
    <>
      {action === "edit" && <Edit ticket={ticket} draft={draft} problems={problems} set={set} />}
      {action === "respond" && <Respond ticket={ticket} draft={draft} set={set} />}
      {(action === "reject" || action === "cancel") && (
        <Reason value={draft.reason} set={set} label={action === "reject" ? "Reason, for the model (optional)" : "Reason (optional)"} />
      )}
      {mayRemember(ticket, action) && (
        <label class="field">
          Applies to
          <select value={draft.remember} onChange={(event) => set({ remember: event.currentTarget.value })}>
            {SCOPES.map(([scope, text]) => (
              <option key={scope} value={scope}>
                {text}
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

interface PartProps {
  ticket: TicketDetail;
  draft: Draft;
  set(change: Partial<Draft>): void;
}

function Edit({ ticket, draft, problems, set }: PartProps & { problems: Problems }) {
  return (
    <>
      <SchemaForm
        schema={editSchema(ticket) ?? ANY}
        value={draft.value}
        problems={problems}
        onChange={(value) => set({ value })}
        onProblem={(isWrong) => set({ isWrong })}
      />
      {ticket.kind !== "limit" && <Diff before={ticket.arguments} after={draft.value} />}
    </>
  );
}

function Respond({ ticket, draft, set }: PartProps) {
  if (ticket.responseSchema) {
    return (
      <SchemaForm
        schema={ticket.responseSchema}
        value={draft.value}
        onChange={(value) => set({ value })}
        onProblem={(isWrong) => set({ isWrong })}
      />
    );
  }
  return (
    <label class="field">
      Result
      <textarea
        rows={3}
        value={typeof draft.value === "string" ? draft.value : ""}
        onInput={(event) => set({ value: event.currentTarget.value })}
      />
    </label>
  );
}

function Reason({ value, set, label }: { value: string; set: PartProps["set"]; label: string }) {
  return (
    <label class="field">
      {label}
      <textarea
        rows={2}
        maxLength={4000}
        value={value}
        onInput={(event) => set({ reason: event.currentTarget.value })}
      />
    </label>
  );
}

/** Approvals of several people can't be remembered, nor decisions that aren't about a tool. */
function mayRemember(ticket: TicketDetail, action: Action): boolean {
  if (ticket.kind !== "approval" || ticket.isQuestionOfTool || ticket.approvers) return false;
  return action === "approve" || action === "reject";
}
