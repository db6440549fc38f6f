// Who may use the panel, and who did what.
import { call, get, query } from './call';
import type { Scope, TrailEntry } from './types';

export interface Somebody {
  kind: 'user' | 'token';
  name: string;
  scopes: Scope[];
}

export function users(signal?: AbortSignal): Promise<{ writable: boolean; users: Somebody[] }> {
  return get('/users', signal);
}

export function addUser(name: string, password: string, scopes: Scope[]): Promise<void> {
  return call('POST', '/users', { name, password, scopes });
}

/** What is left out stays. */
export function changeUser(name: string, change: { password?: string; scopes?: Scope[] }): Promise<void> {
  return call('PUT', `/users/${encodeURIComponent(name)}`, change);
}

export async function addToken(name: string, scopes: Scope[]): Promise<string> {
  return (await call<{ token: string }>('POST', '/tokens', { name, scopes })).token;
}

export function remove({ kind, name }: Somebody): Promise<void> {
  return call('DELETE', `/${kind}s/${encodeURIComponent(name)}`);
}

export async function audit(signal?: AbortSignal): Promise<TrailEntry[]> {
  return (await get<{ entries: TrailEntry[] }>(`/audit${query({ limit: 2000 })}`, signal)).entries;
}
