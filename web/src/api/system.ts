// Logging in and out, the settings, the log.
import { call, get, query } from './call';
import type { Session, Setting } from './types';

export type Login = { user: string; password: string } | { token: string };

export function session(): Promise<Session> {
  return get('/session');
}

/** The routes that this Weir answers, below /api/v1, from the description of its API. */
export async function routes(): Promise<ReadonlySet<string>> {
  const { paths } = await get<{ paths: Record<string, unknown> }>('/openapi.json');
  return new Set(Object.keys(paths).map((path) => path.replace(/^\/api\/v1/, '')));
}

export function login(how: Login): Promise<unknown> {
  return call('POST', '/login', how);
}

export function logout(): Promise<void> {
  return call('POST', '/logout', {});
}

export async function settings(signal?: AbortSignal): Promise<Setting[]> {
  return (await get<{ settings: Setting[] }>('/settings', signal)).settings;
}

export async function log(lines: number, signal?: AbortSignal): Promise<string[]> {
  return (await get<{ lines: string[] }>(`/log${query({ lines })}`, signal)).lines;
}
