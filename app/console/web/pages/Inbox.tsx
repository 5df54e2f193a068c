/** Tickets that wait for people, and the card of the chosen one. */
import { useEffect, useMemo, useState } from "preact/hooks";
import { useAnnounced } from "../core/drawing/announce";
import { listAgents } from "../core/api/agents";
import { useInbox, type Inbox as InboxData } from "../core/inbox/list";
import { useKeys } from "../core/keys";
import { draw, useMe, useReady, useTitle } from "../core/page";
import { countText, useOpenCount } from "../core/inbox/count";
import { useSelection } from "../core/inbox/selection";
import { useTicket } from "../core/ticket";
import { useRead } from "../core/read";
import { useNow } from "../core/time";
import { idInPath, pageUrl, queryOf, setQuery, withQuery } from "../core/url";
import { Icon } from "../parts/Icon";
import { filtersOf, InboxFilters, isFiltered, queryOfFilters, ticketQuery, type Filters } from "../parts/tickets/InboxFilters";
import { Shell } from "../parts/Shell";
import { Empty, Failure, Skeleton } from "../parts/States";
import { RecentlyDecided } from "../parts/tickets/RecentlyDecided";
import { TicketCard, titleOf } from "../parts/tickets/TicketCard";
import { BulkBar } from "../parts/tickets/BulkBar";
import { TicketRow } from "../parts/tickets/TicketRow";

function Inbox() {
  const { me, error: meError } = useMe();
  const [filters, setFilters] = useState(() => filtersOf(queryOf()));
  // What expires soon is meant from the moment at which the filter was chosen.
  const query = useMemo(() => ticketQuery(filters, new Date()), [filters]);
  const inbox = useInbox(query, me);
  const count = countText(useOpenCount(query, inbox.version));
  const [chosen, choose] = useChosen();
  const changes = chosen ? (inbox.state.changes[chosen] ?? 0) : 0;
  const card = useTicket(chosen, changes, inbox.replace);
  const rows = inbox.state.tickets;
  useTitle(`${count ? `(${count}) ` : ""}${card.ticket ? titleOf(card.ticket) : "Inbox"}`);
  useReady(inbox.isLoaded && (!chosen || card.ticket !== null || card.error !== null));
  const selection = useSelection(rows);
  // Without the names, the filter has the agents of the rows.
  const { value: agents } = useRead(listAgents, "agents");
  const newer = inbox.state.newer.length;
  const announced = useAnnounced(newer ? `${newer} new ${newer === 1 ? "ticket" : "tickets"}` : "");
  useInboxKeys(inbox, chosen, choose, selection.toggle);
  const change = (changed: Filters) => {
    setFilters(changed);
    setQuery(queryOfFilters(changed));
  };
  return (
    <Shell page="Inbox" me={me} live={inbox.live} held={inbox.held} waiting={count}>
      <div class={`inbox ${chosen ? "with-card" : ""}`}>
        <section class="list" aria-label="Tickets">
          <h1 class="unseen">Inbox</h1>
          <p class="unseen" role="status">
            {announced}
          </p>
          <InboxFilters
            filters={filters}
            agents={[...new Set([...(agents ?? []).map(({ id }) => id), ...rows.map(({ agentId }) => agentId)])]}
            hasPeople={!!me && !me.isKeyless}
            onChange={change}
            isSelecting={selection.isOn}
            onSelecting={selection.turn}
          />
          {selection.isOn && selection.tickets.length === 0 && <p class="bulk small">Choose calls of one tool, to decide them together.</p>}
          <BulkBar selected={selection.tickets} onSelectAll={selection.all} onClear={selection.clear} />
          {inbox.state.newer.length > 0 && (
            <button class="newer" onClick={inbox.showNewer}>
              {inbox.state.newer.length} new
            </button>
          )}
          <Rows inbox={inbox} error={meError ?? inbox.error} chosen={chosen} choose={selection.isOn ? (id) => id && selection.toggle(id) : choose} filters={filters} selected={selection.ids} />
        </section>
        <div class="card-place">
          {chosen && (
            <p class="only-narrow">
              <button class="plain" onClick={() => choose(null)}>
                <Icon name="back" /> Inbox
              </button>
            </p>
          )}
          {!chosen && <Empty title={rows.length ? "Choose a ticket" : ""}>{rows.length > 0 && <p>Press <kbd>j</kbd> for the first.</p>}</Empty>}
          {chosen && card.error !== null && <Failure error={card.error} onRetry={card.reload} />}
          {chosen && !card.ticket && card.error === null && <Skeleton rows={8} />}
          {card.ticket && (
            <TicketCard
              key={card.ticket.id}
              ticket={card.ticket}
              me={me}
              version={card.version}
              notice={card.notice}
              onOutcome={card.onOutcome}
            />
          )}
        </div>
      </div>
    </Shell>
  );
}

interface RowsProps {
  inbox: InboxData;
  error: unknown;
  chosen: string | null;
  choose(id: string | null): void;
  filters: Filters;
  selected: ReadonlySet<string>;
}

function Rows({ inbox, error, chosen, choose, filters, selected }: RowsProps) {
  const now = useNow();
  const { tickets } = inbox.state;
  if (error) return <Failure error={error} onRetry={inbox.reload} />;
  if (!inbox.isLoaded) return <Skeleton />;
  if (!tickets.length) {
    const isUsual = !isFiltered(filters);
    return (
      <>
        <Empty title={isUsual ? "Nothing waits for you" : "No ticket fits these filters"}>
          <p>Calls that need a decision appear here by themselves.</p>
          {isUsual && (
            <p>
              <a href={pageUrl.start()}>Start a run</a>
            </p>
          )}
        </Empty>
        {isUsual && <RecentlyDecided now={now} onChoose={choose} />}
      </>
    );
  }
  return (
    <div class="rows">
      {tickets.map((ticket) => (
        <TicketRow
          key={ticket.id}
          ticket={ticket}
          isChosen={ticket.id === chosen}
          isSelected={selected.has(ticket.id)}
          now={now}
          onChoose={choose}
        />
      ))}
      {inbox.hasMore && (
        <button class="newer" onClick={inbox.loadMore}>
          More
        </button>
      )}
    </div>
  );
}

/** The chosen ticket is in the path, so that it can be linked to and the browser's Back works. */
function useChosen(): [string | null, (id: string | null) => void] {
  const [chosen, setChosen] = useState(idInPath);
  useEffect(() => {
    const onBack = () => setChosen(idInPath());
    addEventListener("popstate", onBack);
    return () => removeEventListener("popstate", onBack);
  }, []);
  const choose = (id: string | null) => {
    if (id === idInPath()) return;
    history.pushState(null, "", withQuery(id ? pageUrl.ticket(id) : pageUrl.inbox(), queryOf()));
    setChosen(id);
  };
  return [chosen, choose];
}

function useInboxKeys(inbox: InboxData, chosen: string | null, choose: (id: string | null) => void, toggle: (id: string) => void): void {
  const { tickets } = inbox.state;
  const go = (step: number) => {
    const at = tickets.findIndex(({ id }) => id === chosen);
    const next = tickets[at < 0 ? 0 : Math.min(tickets.length - 1, Math.max(0, at + step))];
    if (!next) return;
    choose(next.id);
    document.querySelector(`[data-ticket="${next.id}"]`)?.scrollIntoView({ block: "nearest" });
  };
  const nextOpen = () => {
    const at = tickets.findIndex(({ id }) => id === chosen);
    const later = [...tickets.slice(at + 1), ...tickets.slice(0, Math.max(0, at))];
    const found = later.find(({ status }) => status === "open");
    if (found) choose(found.id);
  };
  useKeys({
    j: () => go(1),
    k: () => go(-1),
    n: nextOpen,
    ...(chosen ? { x: () => toggle(chosen) } : {}),
    "/": () => document.querySelector<HTMLElement>("[data-filter]")?.focus(),
    ...(inbox.state.newer.length ? { ".": inbox.showNewer } : {}),
  });
}

draw(Inbox);
