/** Who the user is, sign-in and sign-out. */
import { request, type Schemas } from "./client";

export interface Me {
  subject: string;
  tenant: string;
  isKeyless: boolean;
  version: string;
  heartbeatSeconds: number;
  may(scope: string): boolean;
}

export async function readMe(): Promise<Me> {
  const me = await request<Schemas["Me"]>("GET", "/v1/me");
  return {
    subject: me.subject,
    tenant: me.tenant,
    isKeyless: me.is_keyless,
    version: me.version,
    heartbeatSeconds: me.stream_heartbeat,
    may: (scope) => me.scopes.includes(scope) || me.scopes.includes("admin"),
  };
}

export async function signIn(key: string): Promise<void> {
  await request<void>("POST", "/console/session", { body: { api_key: key } });
}

export async function signOut(): Promise<void> {
  await request<void>("DELETE", "/console/session");
}
