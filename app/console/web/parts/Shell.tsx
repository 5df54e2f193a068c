/** The frame of every page: navigation, live state, theme, user, help. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { signOut, type Me } from "../core/api/session";
import { useWaiting } from "../core/inbox/count";
import { useKeys } from "../core/keys";
import { useChosenInView } from "../core/layout";
import { chooseTheme, chosenTheme, type Theme } from "../core/theme";
import type { StreamState } from "../core/streams/stream";
import { pageUrl } from "../core/url";
import { Help } from "./Help";
import { Icon } from "./Icon";
import { LiveState } from "./LiveState";
import { OpenId } from "./OpenId";

interface Place {
  name: string;
  href: string;
  /** The key after `g`. */
  key: string;
}

export const PLACES: readonly Place[] = [
  { name: "Inbox", href: pageUrl.inbox(), key: "i" },
  { name: "Runs", href: pageUrl.runs(), key: "r" },
  { name: "Threads", href: pageUrl.threads(), key: "t" },
  { name: "Agents", href: pageUrl.agents(), key: "a" },
  { name: "Memory", href: pageUrl.memory(), key: "m" },
  { name: "System", href: pageUrl.system(), key: "y" },
  { name: "Start a run", href: pageUrl.start(), key: "s" },
];

interface ShellProps {
  page: string;
  me: Me | null;
  live?: StreamState | undefined;
  /** How much has come since the user froze the page; a page without it can't be frozen. */
  held?: number | undefined;
  /** How many tickets wait, the badge of the inbox, on pages that know it. Others read it. */
  waiting?: string | undefined;
  children: ComponentChildren;
}

export function Shell({ page, me, live, held, waiting, children }: ShellProps) {
  const [isHelpOpen, openHelp] = useState(false);
  const go = Object.fromEntries(PLACES.map(({ key, href }) => [`g ${key}`, () => location.assign(href)]));
  const [isOpening, open] = useState(false);
  const nav = useRef<HTMLElement>(null);
  const count = useWaiting(me, waiting);
  useChosenInView(nav, "[aria-current]", `${page}:${count}`);
  useKeys({ ...go, "?": () => openHelp(true), "Ctrl+k": () => open(true) });
  return (
    <>
      <a class="skip" href="#main">
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href={pageUrl.inbox()}>
          Holdfast
        </a>
        <nav aria-label="Pages" ref={nav}>
          {PLACES.map(({ name, href }) => (
            <a key={name} href={href} {...(name === page ? { "aria-current": "page" as const } : {})}>
              {name}
              {name === "Inbox" && count && (
                <span class="count">
                  {count}
                  <span class="unseen"> open</span>
                </span>
              )}
            </a>
          ))}
        </nav>
        <div class="row tools">
          {live && <LiveState state={live} held={held} />}
          <ThemeSwitch />
          <button class="plain" onClick={() => openHelp(true)} aria-label="Keyboard help" title="Keys (?)">
            ?
          </button>
          {me && <User me={me} />}
        </div>
      </header>
      <main id="main" tabIndex={-1}>
        {children}
      </main>
      {isOpening && <OpenId onClose={() => open(false)} />}
      {isHelpOpen && <Help onClose={() => openHelp(false)} />}
    </>
  );
}

const NEXT: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
const THEME_ICON: Record<Theme, string> = { system: "screen", light: "sun", dark: "moon" };

function ThemeSwitch() {
  const [theme, setTheme] = useState(chosenTheme);
  const choose = () => {
    chooseTheme(NEXT[theme]);
    setTheme(NEXT[theme]);
  };
  return (
    <button class="plain" onClick={choose} aria-label={`Colours: ${theme}`} title={`Colours: ${theme}`}>
      <Icon name={THEME_ICON[theme]} />
    </button>
  );
}

function User({ me }: { me: Me }) {
  const leave = async () => {
    await signOut();
    location.assign(pageUrl.login());
  };
  if (me.isKeyless) {
    return (
      <span class="user quiet" title="This server has no API keys, so every decision is by “local”.">
        {me.subject}
      </span>
    );
  }
  return (
    <span class="user row">
      <b>{me.subject}</b>
      <button class="plain" onClick={() => void leave()}>
        Sign out
      </button>
    </span>
  );
}
