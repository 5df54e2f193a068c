/** Notifications of the browser about new tickets: off until the user switches them on. */
import type { Ticket } from "../api/tickets";
import { pageUrl } from "../url";

const PREFERENCE = "holdfast-notifications";

export type Permission = "unsupported" | "denied" | "off" | "on";

export function notifications(): Permission {
  if (!("Notification" in window)) return "unsupported";
  if (Notification.permission === "denied") return "denied";
  return Notification.permission === "granted" && stored() ? "on" : "off";
}

/** Asks the browser for its permission, which it gives only after a click. */
export async function switchNotifications(on: boolean): Promise<Permission> {
  if (on && "Notification" in window) await Notification.requestPermission();
  try {
    if (on) localStorage.setItem(PREFERENCE, "on");
    else localStorage.removeItem(PREFERENCE);
  } catch {
    // Without storage they stay off.
  }
  return notifications();
}

/** Tells of a ticket that was opened while the page is hidden. Tabs that tell of the same one show it once. */
export function notifyOf(ticket: Ticket, title: string): void {
  if (!document.hidden || notifications() !== "on") return;
  const shown = new Notification(title, { tag: ticket.id, body: "Holdfast waits for your decision." });
  shown.onclick = () => {
    window.focus();
    location.assign(pageUrl.ticket(ticket.id));
    shown.close();
  };
}

function stored(): boolean {
  try {
    return localStorage.getItem(PREFERENCE) === "on";
  } catch {
    return false;
  }
}
