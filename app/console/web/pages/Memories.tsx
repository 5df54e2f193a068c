/** What agents keep across runs: a person finds, exports and erases it. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { exportUrl, forget, listMemories, memoryPath, type Memory } from "../core/api/memories";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { ago, fullTime, useNow } from "../core/time";
import { pageUrl, queryOf, setQuery } from "../core/url";
import { ActionDialog } from "../parts/run/ActionDialog";
import { Shell } from "../parts/Shell";
import { Empty, Failure, Skeleton } from "../parts/States";
import { SafeText } from "../parts/Text";

interface Found {
  items: Memory[];
  next: string | null;
}

function Memories() {
  const { me, error: meError } = useMe();
  const [words, setWords] = useState(queryOf()["find"] ?? "");
  const [isOfAll, setOfAll] = useState(queryOf()["owners"] === "all");
  const [found, setFound] = useState<Found | null>(null);
  const [error, setError] = useState<unknown>(null);
  const [reading, setReading] = useState(0);
  const [asked, ask] = useState<Memory | null>(null);
  const problem = meError ?? error;
  const wanted = { words, isOfAll };
  useEffect(() => {
    const stopped = new AbortController();
    setError(null);
    listMemories(wanted, null, stopped.signal).then(setFound, (why: unknown) => !stopped.signal.aborted && setError(why));
    setQuery({ find: words || null, owners: isOfAll ? "all" : null });
    return () => stopped.abort();
  }, [words, isOfAll, reading]);
  const loadMore = async () => {
    try {
      const more = await listMemories(wanted, found?.next ?? null);
      setFound({ items: [...(found?.items ?? []), ...more.items], next: more.next });
    } catch (why) {
      setError(why);
    }
  };
  useTitle("Memory");
  useReady(found !== null || problem !== null);
  return (
    <Shell page="Memory" me={me}>
      <div class="page stack system memory">
        <h1>Memory</h1>
        <p class="quiet">What agents keep across runs. Deleting it changes no conversation.</p>
        <Search words={words} onFind={setWords}>
          {me?.may("memories:all") && (
            <label class="row">
              <input type="checkbox" checked={isOfAll} onChange={(event) => setOfAll(event.currentTarget.checked)} /> Of all owners
            </label>
          )}
          <a class="button" href={exportUrl(wanted)} download="memories.jsonl">
            Export
          </a>
        </Search>
        {problem ? <Failure error={problem} onRetry={() => setReading(reading + 1)} /> : null}
        {!found && !problem && <Skeleton rows={6} />}
        {found && !problem && !found.items.length && <Empty title={words ? "No memory has these words" : "Nothing is kept"} />}
        {found && !problem && found.items.length > 0 && <Table items={found.items} onForget={ask} />}
        {found?.next && !problem && <button onClick={() => void loadMore()}>More</button>}
      </div>
      {asked && (
        <ActionDialog
          title={`Forget ${asked.key}?`}
          name="Forget it for good"
          isDangerous
          request={{ method: "DELETE", path: memoryPath(asked), body: undefined }}
          send={async () => {
            await forget(asked);
            setFound((now) => now && { ...now, items: now.items.filter(({ id }) => id !== asked.id) });
          }}
          onClose={() => ask(null)}
        >
          <p>Runs that start afterwards don’t know it. Conversations that have mentioned it stay.</p>
        </ActionDialog>
      )}
    </Shell>
  );
}

interface SearchProps {
  words: string;
  onFind(words: string): void;
  children: ComponentChildren;
}

function Search({ words, onFind, children }: SearchProps) {
  const [text, setText] = useState(words);
  return (
    <form
      class="filters"
      aria-label="Filters"
      onSubmit={(event) => {
        event.preventDefault();
        onFind(text.trim());
      }}
    >
      <input class="grow" aria-label="Words of a memory" placeholder="Words of a memory  /" data-filter value={text} onInput={(event) => setText(event.currentTarget.value)} />
      <button>Find</button>
      {children}
    </form>
  );
}

function Table({ items, onForget }: { items: Memory[]; onForget(memory: Memory): void }) {
  const now = useNow(5);
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Table of memories">
      <table class="table memory-table">
        <thead>
          <tr>
            <th scope="col">Key</th>
            <th scope="col">Value</th>
            <th scope="col">Owner</th>
            <th scope="col">Saved by</th>
            <th scope="col" class="right">Changed</th>
            <th scope="col">Action</th>
          </tr>
        </thead>
        <tbody>
          {items.map((memory) => (
            <tr key={memory.id}>
              <td class="mono small">{memory.key}</td>
              <td class="wrap">
                <SafeText text={typeof memory.value === "string" ? memory.value : JSON.stringify(memory.value)} />
              </td>
              <td class="small">
                <SafeText text={memory.subject === null ? memory.scope : `${memory.scope} ${memory.subject}`} />
              </td>
              <td class="small" data-name="Saved by">
                {memory.runId ? <a href={pageUrl.run(memory.runId)}>{memory.agentId}</a> : <SafeText text={memory.savedBy} />}
              </td>
              <td class="right quiet number" title={fullTime(memory.changedAt)}>
                {ago(memory.changedAt, now)}
              </td>
              <td>
                <button aria-label={`Forget ${memory.key}`} onClick={() => onForget(memory)}>
                  Forget
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

draw(Memories);
