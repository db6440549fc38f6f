// Who is connected and what runs: clients, servers, queries, and the past of the charts.
import { call, get, query } from './call';
import type { Client, History, Query, Server } from './types';

export interface Filter {
  database: string;
  user: string;
  state: string;
  application: string;
  /** A reason, or `any`. */
  pinned: string;
  /** A number; anything else is sent as typed, and refused. */
  shard: string;
}

export const NO_FILTER: Filter = { database: '', user: '', state: '', application: '', pinned: '', shard: '' };

export interface Page<T> {
  rows: T[];
  next: string | null;
}

export const PAGE_ROWS = 50;

export async function clients(filter: Filter, cursor: string | null, signal?: AbortSignal): Promise<Page<Client>> {
  const page = await get<{ clients: Client[]; next_cursor?: string | null }>(
    `/clients${query({ ...filter, cursor, limit: PAGE_ROWS })}`,
    signal,
  );
  return { rows: page.clients, next: page.next_cursor ?? null };
}

export async function servers(filter: Filter, cursor: string | null, signal?: AbortSignal): Promise<Page<Server>> {
  const page = await get<{ servers: Server[]; next_cursor?: string | null }>(
    `/servers${query({ ...filter, cursor, limit: PAGE_ROWS })}`,
    signal,
  );
  return { rows: page.servers, next: page.next_cursor ?? null };
}

export function killClient(id: number): Promise<void> {
  return call('POST', `/clients/${id}/kill`, {});
}

export type QuerySort = 'time' | 'calls' | 'mean' | 'p95';

export function queries(database: string, sort: QuerySort, signal?: AbortSignal): Promise<{ queries: Query[]; tracking: boolean }> {
  return get(`/queries${query({ database, sort, limit: 100 })}`, signal);
}

export function history(database: string, seconds: number, signal?: AbortSignal): Promise<History> {
  return get(`/history${query({ database, seconds })}`, signal);
}
