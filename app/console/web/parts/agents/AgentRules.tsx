/** Decisions that were remembered: calls that run, or don't, without asking. */
import { useEffect, useState } from "preact/hooks";
import { listRules, revokeRule, revokeRuleRequest, type Rule } from "../../core/api/agents";
import type { Me } from "../../core/api/session";
import { pretty } from "../../core/json";
import { clockTime } from "../../core/time";
import { CopyAsCurl } from "../CopyAsCurl";
import { Failure } from "../States";
import { SafeText } from "../Text";

export function AgentRules({ agent, me }: { agent: string; me: Me | null }) {
  const [rules, setRules] = useState<Rule[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const [armed, arm] = useState<string | null>(null);
  useEffect(() => {
    const stopped = new AbortController();
    setError(null);
    listRules(agent, stopped.signal).then(setRules, (problem: unknown) => !stopped.signal.aborted && setError(problem));
    return () => stopped.abort();
  }, [agent, reading]);
  const revoke = async (id: string) => {
    try {
      await revokeRule(revokeRuleRequest(id));
      setReading((count) => count + 1);
    } catch (problem) {
      setError(problem);
    }
  };
  if (!rules.length && !error) return null;
  return (
    <section>
      <h2>Remembered decisions</h2>
      {error ? <Failure error={error} onRetry={() => setReading((count) => count + 1)} /> : null}
      <ul class="stack">
        {rules.map(({ id, behavior, pattern, scope, by, at, reason, arguments: given }) => (
          <li key={id} class="row rule">
            <span class="grow">
              <b>{behavior}</b> <code>{pattern}</code> <span class="quiet">for this {scope}</span>
              {given ? <pre class="small quiet">{pretty(given)}</pre> : null}
              <span class="small quiet">
                {" "}
                <SafeText text={`${by}, ${clockTime(at, new Date())}${reason ? `: ${reason}` : ""}`} />
              </span>
            </span>
            <button
              class={armed === id ? "danger armed" : ""}
              disabled={me !== null && !me.may("decisions:write")}
              onClick={() => (armed === id ? void revoke(id) : arm(id))}
              onBlur={() => arm(null)}
            >
              {armed === id ? "Revoke: press again" : "Revoke"}
            </button>
            <CopyAsCurl request={() => revokeRuleRequest(id)} />
          </li>
        ))}
      </ul>
    </section>
  );
}
