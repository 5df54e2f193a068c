/** A status by shape, word and colour. */
import { Icon } from "./Icon";

type Look = readonly [icon: string, word: string, tone: string];

const TICKET: Record<string, Look> = {
  open: ["person", "open", "wait"],
  decided: ["ok", "decided", "ok"],
  expired: ["clock", "expired", "warn"],
  void: ["cancelled", "void", "quiet"],
};

export function TicketStatusMark({ status, decision }: { status: string; decision: string | null }) {
  const look: Look = decision ? ([...DECIDED[decision]!] as unknown as Look) : TICKET[status]!;
  return <Mark look={look} />;
}

const DECIDED: Record<string, Look> = {
  approve: ["ok", "approved", "ok"],
  edit: ["ok", "approved with changes", "ok"],
  respond: ["ok", "answered", "ok"],
  reject: ["failed", "rejected", "bad"],
  cancel: ["cancelled", "dropped", "quiet"],
};

export function wordOf(action: string): string {
  return DECIDED[action]?.[1] ?? action;
}

export function Mark({ look: [icon, word, tone] }: { look: Look }) {
  return (
    <span class={`status ${tone}`}>
      <Icon name={icon} />
      {word}
    </span>
  );
}
