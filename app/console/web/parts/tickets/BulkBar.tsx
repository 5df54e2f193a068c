/** The selected tickets: all calls of one tool, approved or rejected together after they were shown. */
import { useMemo, useState } from "preact/hooks";
import { bulkRequest, decideAll, type BulkAnswer, type BulkResults } from "../../core/api/bulk";
import type { Ticket } from "../../core/api/tickets";
import { newId } from "../../core/ids";
import { pretty } from "../../core/json";
import { CopyAsCurl } from "../CopyAsCurl";
import { Dialog } from "../Dialog";
import { Failure } from "../States";
import { SafeText } from "../Text";

/** A selection has one agent and one tool. More than the server takes at once aren't selected. */
export const MOST_SELECTED = 100;

export function maySelect(ticket: Ticket, selected: readonly Ticket[]): boolean {
  const [first] = selected;
  if (ticket.status !== "open" || ticket.kind !== "approval" || selected.length >= MOST_SELECTED) return false;
  if (ticket.mayDecide?.allowed === false) return false;
  return !first || (first.agentId === ticket.agentId && first.tool === ticket.tool);
}

interface BulkBarProps {
  selected: readonly Ticket[];
  onSelectAll(): void;
  onClear(): void;
}

export function BulkBar({ selected, onSelectAll, onClear }: BulkBarProps) {
  // The dialog keeps its tickets: decided ones leave the selection, and their results are still shown.
  const [asked, ask] = useState<{ action: BulkAnswer["action"]; tickets: readonly Ticket[] } | null>(null);
  const choose = (action: BulkAnswer["action"]) => ask({ action, tickets: selected });
  const close = () => ask(null);
  const end = () => {
    close();
    onClear();
  };
  const tool = selected[0]?.tool;
  return (
    <>
      {tool !== undefined && (
        <div class="bulk row small" role="group" aria-label="Selected tickets">
          <b>{selected.length} selected</b>
          <button class="plain" onClick={onSelectAll}>
            All of {tool}
          </button>
          <span class="grow" />
          <button onClick={() => choose("approve")}>Approve …</button>
          <button onClick={() => choose("reject")}>Reject …</button>
          <button class="plain" onClick={onClear}>
            Clear
          </button>
        </div>
      )}
      {asked && <BulkDialog tickets={asked.tickets} action={asked.action} onClose={close} onDone={end} />}
    </>
  );
}

const WORDS = { approve: ["Approve", "approved"], reject: ["Reject", "rejected"] } as const;

interface BulkDialogProps {
  tickets: readonly Ticket[];
  action: BulkAnswer["action"];
  onClose(): void;
  onDone(): void;
}

function BulkDialog({ tickets, action, onClose, onDone }: BulkDialogProps) {
  const ids = useMemo(() => new Map(tickets.map(({ id }) => [id, newId()])), [tickets]);
  const [reason, setReason] = useState("");
  const [results, setResults] = useState<BulkResults | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [isBusy, setBusy] = useState(false);
  const [word, past] = WORDS[action];
  const request = () => bulkRequest(tickets, { action, reason: reason.trim() }, ids);
  const close = results ? onDone : onClose;
  const submit = async (event: Event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      setResults(await decideAll(request()));
    } catch (problem) {
      setError(problem);
    }
    setBusy(false);
  };
  return (
    <Dialog title={`${word} ${tickets.length} calls of ${tickets[0]!.tool}?`} onClose={close}>
      <form class="stack" onSubmit={(event) => void submit(event)}>
        <div class="scroll bulk-calls" tabIndex={0} role="region" aria-label="Calls">
          <table class="table">
            <tbody>
              {tickets.map((ticket) => (
                <tr key={ticket.id}>
                  <td class="mono small wrap">
                    <SafeText text={pretty(ticket.arguments)} />
                  </td>
                  {results && <td class={`small wrap ${results.get(ticket.id) ? "bad" : "ok"}`}>{results.get(ticket.id) ?? past}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
        {!results && (
          <label class="field">
            <span>
              Reason <span class="quiet">(optional)</span>
            </span>
            <input value={reason} maxLength={4000} onInput={(event) => setReason(event.currentTarget.value)} />
          </label>
        )}
        {error ? <Failure error={error} /> : null}
        {results ? (
          <p role="status" class="row">
            <span class="grow">{summary(results, past)}</span>
            <button type="button" class="primary" onClick={close}>
              Done
            </button>
          </p>
        ) : (
          <p class="row">
            <button class={action === "reject" ? "danger armed" : "primary"} disabled={isBusy}>
              {isBusy ? "Sending …" : `${word} all ${tickets.length}`}
            </button>
            <span class="grow" />
            <CopyAsCurl request={request} />
          </p>
        )}
      </form>
    </Dialog>
  );
}

function summary(results: BulkResults, past: string): string {
  const refused = [...results.values()].filter(Boolean).length;
  const text = `${results.size - refused} ${past}`;
  return refused ? `${text}, ${refused} not` : text;
}
