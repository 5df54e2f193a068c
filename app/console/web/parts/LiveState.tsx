/** Whether the page follows changes, and the button that freezes their drawing. */
import { useKeys } from "../core/keys";
import { useFreeze } from "../core/drawing/freeze";
import type { StreamState } from "../core/streams/stream";
import { Icon } from "./Icon";

const TEXT: Record<StreamState, string> = {
  connecting: "connecting",
  live: "live",
  waiting: "reconnecting",
  ended: "ended",
};

interface LiveStateProps {
  state: StreamState;
  /** How much has come since the page was frozen; undefined if it can't be frozen. */
  held: number | undefined;
}

export function LiveState({ state, held }: LiveStateProps) {
  const { isFrozen } = useFreeze();
  if (held === undefined) return <LiveText state={state} />;
  // A stream that has ended brings nothing more, but what it has brought may still be held.
  return (
    <>
      {(state !== "ended" || isFrozen) && <FreezeButton held={held} />}
      {isFrozen ? <span class="live is-frozen">frozen</span> : <LiveText state={state} />}
    </>
  );
}

function FreezeButton({ held }: { held: number }) {
  const { isFrozen, toggle } = useFreeze();
  useKeys({ p: toggle });
  if (!isFrozen) {
    return (
      <button class="plain" onClick={toggle} aria-label="Freeze live changes" title="Freeze live changes (p)">
        <Icon name="freeze" />
      </button>
    );
  }
  return (
    <button class="frozen" onClick={toggle} title="Draw what has come, and follow changes again (p)">
      <Icon name="follow" />
      {/* A narrow screen shows the number alone. */}
      <span>
        <span class="word">Follow{held > 0 && " ("}</span>
        {held > 0 && held}
        {held > 0 && <span class="word"> new)</span>}
      </span>
    </button>
  );
}

function LiveText({ state }: { state: StreamState }) {
  return (
    <span class={`live is-${state}`} title="Changes appear by themselves">
      {TEXT[state]}
    </span>
  );
}
