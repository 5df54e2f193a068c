/** A form that starts a run, and leads to it. */
import { listAgents } from "../core/api/agents";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { useRead } from "../core/read";
import { queryOf } from "../core/url";
import { StartForm } from "../parts/run/StartForm";
import { Shell } from "../parts/Shell";
import { Failure, Skeleton } from "../parts/States";

function Start() {
  const { me, error: meError } = useMe();
  const { value: agents, error, retry } = useRead(listAgents, "agents");
  useTitle("Start a run");
  useReady(agents !== undefined || error !== null);
  const problem = meError ?? error;
  return (
    <Shell page="Start a run" me={me}>
      <div class="page narrow stack">
        <h1>Start a run</h1>
        {problem ? <Failure error={problem} onRetry={retry} /> : null}
        {!agents && !problem && <Skeleton rows={3} />}
        {agents && <StartForm agents={agents} first={queryOf()["agent"]} hasFocus maySend={me?.may("runs:write") ?? true} />}
      </div>
    </Shell>
  );
}

draw(Start);
