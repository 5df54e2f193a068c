/** Conversations: the list of threads, and beside it the chosen one, over all its runs. */
import { useState } from "preact/hooks";
import type { Thread } from "../core/api/threads";
import type { Message } from "../core/api/messages";
import type { Me } from "../core/api/session";
import { useKeys } from "../core/keys";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { useThreads, type ThreadList } from "../core/threads/list";
import { useThread } from "../core/threads/thread";
import { useNow } from "../core/time";
import { idInPath, pageUrl, queryOf, setQuery } from "../core/url";
import { Icon } from "../parts/Icon";
import { Conversation } from "../parts/run/Conversation";
import { ForkDialog } from "../parts/run/ForkDialog";
import { RunStatus } from "../parts/run/RunStatus";
import { Shell } from "../parts/Shell";
import { Empty, Failure, Skeleton } from "../parts/States";
import { SafeText } from "../parts/Text";
import { NewThread } from "../parts/threads/NewThread";
import { PendingInputs } from "../parts/threads/PendingInputs";
import { ThreadComposer } from "../parts/threads/ThreadComposer";
import { nameOf, ThreadRow } from "../parts/threads/ThreadRow";

function Threads() {
  const id = idInPath();
  const { me, error: meError } = useMe();
  const [key, setKey] = useState(queryOf()["find"] ?? "");
  const list = useThreads(key, me);
  const chat = useThread(id, me);
  const problem = meError ?? list.error;
  useTitle(chat.thread ? nameOf(chat.thread) : "Threads");
  useReady((list.items !== null || problem !== null) && (!id || chat.state !== null || chat.error !== null));
  useThreadKeys(list, id);
  return (
    <Shell page="Threads" me={me} live={id && !chat.error ? chat.live : undefined} held={id ? chat.held : undefined}>
      <div class={`inbox threads ${id ? "with-card" : ""}`}>
        <section class="list" aria-label="Threads">
          <h1 class="unseen">Threads</h1>
          <KeyFilter
            value={key}
            onChange={(changed) => {
              setKey(changed);
              setQuery({ find: changed || null });
            }}
          />
          {problem ? <Failure error={problem} onRetry={list.reload} /> : <Rows list={list} chosen={id} isFiltered={key !== ""} />}
        </section>
        <div class="card-place">
          {id ? <Chat chat={chat} id={id} me={me} /> : <NewThread me={me} />}
        </div>
      </div>
    </Shell>
  );
}

function Rows({ list, chosen, isFiltered }: { list: ThreadList; chosen: string | null; isFiltered: boolean }) {
  const now = useNow();
  if (!list.items) return <Skeleton />;
  if (!list.items.length) {
    return (
      <Empty title={isFiltered ? "No thread has these words in its title" : "No threads yet"}>
        <p>Write to an agent to begin one.</p>
      </Empty>
    );
  }
  return (
    <div class="rows">
      {list.newer > 0 && (
        <button class="newer" onClick={list.showNewer}>
          {list.newer} new
        </button>
      )}
      {list.items.map((thread) => (
        <ThreadRow key={thread.id} thread={thread} isChosen={thread.id === chosen} now={now} />
      ))}
      {list.next && (
        <button class="newer" onClick={list.loadMore}>
          More
        </button>
      )}
    </div>
  );
}

function KeyFilter({ value, onChange }: { value: string; onChange(key: string): void }) {
  const [text, setText] = useState(value);
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        onChange(text.trim());
      }}
    >
      <input class="grow" aria-label="Words of the title, or key:name" placeholder="Words of the title, or key:name  /" data-filter value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button>Find</button>
    </form>
  );
}

function Chat({ chat, id, me }: { chat: ReturnType<typeof useThread>; id: string; me: Me | null }) {
  const { thread, run, state, pending, error, reload } = chat;
  return (
    <div class="chat">
      <p class="only-narrow">
        <a href={pageUrl.threads()} class="row">
          <Icon name="back" /> Threads
        </a>
      </p>
      {error ? <Failure error={error} onRetry={reload} /> : null}
      {!error && !(thread && state) && <Skeleton rows={8} />}
      {thread && state && (
        <>
          <header class="row">
            <h2 class="grow cut">
              <SafeText text={nameOf(thread)} />
            </h2>
            {run && <RunStatus run={run} />}
            <RunLink thread={thread} messages={state.messages} />
            <Fork thread={thread} messages={state.messages} me={me} />
          </header>
          {/* Each message of a thread is shown, also those of other runs. */}
          <Conversation state={state} me={me} runId="" />
          <PendingInputs threadId={id} inputs={pending} mayChange={me?.may("runs:write") ?? true} onChanged={reload} />
          <ThreadComposer threadId={id} run={run} me={me} onSent={reload} />
        </>
      )}
    </div>
  );
}

function Fork({ thread, messages, me }: { thread: Thread; messages: readonly Message[]; me: Me | null }) {
  const [isAsked, ask] = useState(false);
  const refusal = me && !me.may("runs:write") ? "Needs the scope runs:write" : null;
  return (
    <>
      <button class="small" disabled={refusal !== null || !messages.length} {...(refusal ? { title: refusal } : {})} onClick={() => ask(true)}>
        Fork
      </button>
      {isAsked && <ForkDialog threadId={thread.id} messages={messages} onClose={() => ask(false)} />}
    </>
  );
}

/** The open run, or the last one that said or read something: a run whose messages were retracted did neither. */
function RunLink({ thread, messages }: { thread: Thread; messages: readonly Message[] }) {
  const last = messages.findLast(({ runId }) => runId !== null)?.runId ?? thread.latestRunId;
  const id = thread.openRunId ?? last;
  if (!id) return null;
  return (
    <a class="small" href={pageUrl.run(id)}>
      {thread.openRunId ? "Open run" : "Last run"}
    </a>
  );
}

function useThreadKeys(list: ThreadList, chosen: string | null): void {
  const go = (step: number) => {
    const items = list.items ?? [];
    const at = items.findIndex(({ id }) => id === chosen);
    const next = items[at < 0 ? 0 : at + step];
    if (next) location.assign(pageUrl.thread(next.id));
  };
  useKeys({ j: () => go(1), k: () => go(-1), "/": () => document.querySelector<HTMLElement>("[data-filter]")?.focus() });
}

draw(Threads);
