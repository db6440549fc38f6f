// Connections and queries: clients, servers, queries, and the history of the charts.
import { call, get, query } from './call';
import type { Client, History, HostsHistory, Mark, QueryPlan, Query, QueryDetails, Server } from './types';

export interface Filter {
  database: string;
  user: string;
  state: string;
  application: string;
  /** A reason, or `any`. */
  pinned: string;
  /** A number; anything else is sent as typed, and rejected. */
  shard: string;
}

export const NO_FILTER: Filter = { database: '', user: '', state: '', application: '', pinned: '', shard: '' };

export interface Page<T> {
  rows: T[];
  next: string | null;
}

export const PAGE_ROWS = 50;

export async function clients(filter: Filter, sort: string, cursor: string | null, signal?: AbortSignal): Promise<Page<Client>> {
  const page = await get<{ clients: Client[]; next_cursor?: string | null }>(
    `/clients${query({ ...filter, sort, cursor, limit: PAGE_ROWS })}`,
    signal,
  );
  return { rows: page.clients, next: page.next_cursor ?? null };
}

export async function servers(filter: Filter, sort: string, cursor: string | null, signal?: AbortSignal): Promise<Page<Server>> {
  const page = await get<{ servers: Server[]; next_cursor?: string | null }>(
    `/servers${query({ ...filter, sort, cursor, limit: PAGE_ROWS })}`,
    signal,
  );
  return { rows: page.servers, next: page.next_cursor ?? null };
}

export function killClient(id: number): Promise<void> {
  return call('POST', `/clients/${id}/kill`, {});
}

/** Cancels the client's query; the client stays connected. */
export function cancelClient(id: number): Promise<void> {
  return call('POST', `/clients/${id}/cancel`, {});
}

export type QuerySort = 'time' | 'calls' | 'mean' | 'p95' | 'errors';

export function queryDetails(database: string, fingerprint: string, signal?: AbortSignal): Promise<QueryDetails> {
  return get(`/queries/${encodeURIComponent(fingerprint)}${query({ database })}`, signal);
}

export function explain(database: string, fingerprint: string): Promise<QueryPlan> {
  return call('POST', `/queries/${encodeURIComponent(fingerprint)}/explain`, { database });
}

/** Resets the statistics of one pool or (empty) of all. */
export function resetQueries(database: string): Promise<void> {
  return call('POST', '/queries/reset', database ? { database } : {});
}

export function queries(database: string, sort: QuerySort, search: string, signal?: AbortSignal): Promise<{ queries: Query[]; tracking: boolean }> {
  return get(`/queries${query({ database, sort, search, limit: 100 })}`, signal);
}

/** The last seconds, or from one second to another. */
export type Span = { seconds: number } | { from: number; to: number };

export function history(database: string, span: Span, signal?: AbortSignal): Promise<History> {
  return get(`/history${query({ database, ...span })}`, signal);
}

export async function marks(database: string, seconds: number, signal?: AbortSignal): Promise<Mark[]> {
  return (await get<{ marks: Mark[] }>(`/marks${query({ database, seconds })}`, signal)).marks;
}

/** The address of the same as a table of comma-separated values. */
export const csvAddress = (database: string, span: Span) => `/api/v1/history${query({ database, ...span, format: 'csv' })}`;

/** How far the hosts of a pool were behind, and what they were. */
export function hostHistory(database: string, span: Span, signal?: AbortSignal): Promise<HostsHistory> {
  return get(`/hosts/history${query({ database, ...span })}`, signal);
}

export const hostsCsvAddress = (database: string, span: Span) => `/api/v1/hosts/history${query({ database, ...span, format: 'csv' })}`;
