// Users, tokens and the audit trail.
import { call, get, query } from './call';
import type { AuditEntry, Scope, UserEntry } from './types';

export function users(signal?: AbortSignal): Promise<{ writable: boolean; users: UserEntry[] }> {
  return get('/users', signal);
}

export function addUser(name: string, password: string, scopes: Scope[]): Promise<void> {
  return call('POST', '/users', { name, password, scopes });
}

/** Omitted fields stay. */
export function changeUser(name: string, change: { password?: string; scopes?: Scope[] }): Promise<void> {
  return call('PUT', `/users/${encodeURIComponent(name)}`, change);
}

export async function addToken(name: string, scopes: Scope[]): Promise<string> {
  return (await call<{ token: string }>('POST', '/tokens', { name, scopes })).token;
}

export function remove({ kind, name }: UserEntry): Promise<void> {
  return call('DELETE', `/${kind}s/${encodeURIComponent(name)}`);
}

export async function audit(signal?: AbortSignal): Promise<AuditEntry[]> {
  return (await get<{ entries: AuditEntry[] }>(`/audit${query({ limit: 2000 })}`, signal)).entries;
}
