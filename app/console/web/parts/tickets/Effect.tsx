/** What the tool of a call does, on tickets whose approval runs the call: an answer to a question runs nothing. */
import type { Ticket } from "../../core/api/tickets";
import { Icon } from "../Icon";

const LOOKS: Record<string, { look: string; text: string; title: string }> = {
  unsafe: { look: "warn", text: "unsafe", title: "Running it twice repeats its effect" },
  read: { look: "ok", text: "only reads", title: "It changes nothing" },
  idempotent: { look: "busy", text: "idempotent", title: "Running it twice has the effect of once" },
};

export function Effect({ ticket: { effect, actions } }: { ticket: Pick<Ticket, "effect" | "actions"> }) {
  const found = LOOKS[effect ?? ""];
  if (!found || !actions.includes("approve")) return null;
  return (
    <span class={`badge ${found.look}`} title={found.title}>
      {effect === "unsafe" && <Icon name="warning" />} {found.text}
    </span>
  );
}
