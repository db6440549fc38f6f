// Clusters and pools: list, look, preview, create, change, delete, and what an operator does to one.
import { call, get, query } from './call';
import type { Span } from './activity';
import type { Cache, Cluster, CreatePool, Hosts, Pool, PoolDetails, PoolSetting, PoolSize, PoolSizeHistory, Preview, Queues } from './types';

export type PoolAction = 'pause' | 'resume' | 'reconnect' | 'kill' | 'enable' | 'disable';

const at = (name: string) => `/pools/${encodeURIComponent(name)}`;

export async function clusters(signal?: AbortSignal): Promise<Cluster[]> {
  return (await get<{ clusters: Cluster[] }>('/clusters', signal)).clusters;
}

/** All pools, asked for page by page. */
export async function pools(signal?: AbortSignal): Promise<Pool[]> {
  const all: Pool[] = [];
  let cursor: string | null | undefined;
  do {
    const page: { pools: Pool[]; next_cursor?: string | null } = await get(`/pools${query({ cursor })}`, signal);
    all.push(...page.pools);
    cursor = page.next_cursor;
  } while (cursor);
  return all;
}

export async function pool(name: string, signal?: AbortSignal): Promise<PoolDetails> {
  return (await get<{ pool: PoolDetails }>(at(name), signal)).pool;
}

/** The hosts of a pool whose reads go to standbys; none of any other. */
export function hosts(database: string, signal?: AbortSignal): Promise<Hosts> {
  return get(`/hosts${query({ database })}`, signal);
}

/** The query cache of a pool's entry; null if it has none. */
export async function cache(database: string, signal?: AbortSignal): Promise<Cache | null> {
  return (await get<{ caches: Cache[] }>(`/caches${query({ database })}`, signal)).caches[0] ?? null;
}

/** The subjects of a pool's fair queue; none where its queue is first come, first served. */
export function queues(database: string, signal?: AbortSignal): Promise<Queues> {
  return get(`/queues${query({ database })}`, signal);
}

/** The sizes of an entry's pools, one for each user and each host of its reads. */
export async function poolSizes(database: string, signal?: AbortSignal): Promise<PoolSize[]> {
  return (await get<{ pools: PoolSize[] }>(`/pool-sizes${query({ database })}`, signal)).pools;
}

type PoolKey = Pick<PoolSize, 'database' | 'user' | 'host'>;
const ofPool = ({ database, user, host }: PoolKey, span: Span) => ({ database, user, host, ...span });

export function poolSizeHistory(pool: PoolKey, span: Span, signal?: AbortSignal): Promise<PoolSizeHistory> {
  return get(`/pool-sizes/history${query(ofPool(pool, span))}`, signal);
}

export const poolSizeCsvAddress = (pool: PoolKey, span: Span) => `/api/v1/pool-sizes/history${query({ ...ofPool(pool, span), format: 'csv' })}`;

/** No reads go to a host that is detached. */
export function actOnHost(database: string, host: string, action: 'detach' | 'attach'): Promise<void> {
  return call('POST', `/databases/${encodeURIComponent(database)}/hosts/${encodeURIComponent(host)}/${action}`, {});
}

/** What a pool may be given beside its database, user, mode and size. */
export async function poolSettings(signal?: AbortSignal): Promise<PoolSetting[]> {
  return (await get<{ settings: PoolSetting[] }>('/settings/pools', signal)).settings;
}

/** What saving would change; `was` is the pool's present name, null for a new one. */
export function preview(was: string | null, request: CreatePool): Promise<Preview> {
  return was === null ? call('POST', '/pools?preview=true', request) : call('PUT', `${at(was)}?preview=true`, request);
}

export function save(was: string | null, request: CreatePool): Promise<{ pool: Pool }> {
  return was === null ? call('POST', '/pools', request) : call('PUT', at(was), request);
}

export function remove(name: string): Promise<void> {
  return call('DELETE', at(name));
}

/** Answers at once, or with a message when the action is begun and will take its time. */
export function act(name: string, action: PoolAction, nodes: 'this' | 'all' = 'this'): Promise<{ message: string } | undefined> {
  return call('POST', `/databases/${encodeURIComponent(name)}/${action}${nodes === 'all' ? '?fleet=true' : ''}`, action === 'kill' ? { confirm: name } : {});
}
