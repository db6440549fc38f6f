// The one live stream: the newest sample, short histories for sparklines, and whether what is shown is still true. Started by the shell
// after the login.
import { history } from '../api/activity';
import { stream } from '../api/stream';
import type { DatabaseSample, PoolSample, Sample } from '../api/types';
import { session } from './session.svelte';

/** Without a sample for this long, the page is stale. */
const STALE_MS = 3500;
const SPARK_POINTS = 60;
const SPARKS_RECALLED = 24;

export type LiveStatus = 'connecting' | 'live' | 'stale';

class Live {
  sample = $state.raw<Sample | null>(null);
  pulse = $state<LiveStatus>('connecting');
  /** When the newest sample came, or one began to wait for it, in seconds since the epoch. */
  since = $state(0);
  /** Transactions per second of each database in the last minute, oldest first. */
  sparks = new Map<string, number[]>();
  #recalled = new Set<string>();
  #listeners = new Set<(sample: Sample) => void>();
  #watch: ReturnType<typeof setTimeout> | undefined;

  databases = $derived(new Map<string, DatabaseSample>(this.sample?.databases.map((one) => [one.database, one])));
  pools = $derived(summed(this.sample?.pools ?? []));

  start(): () => void {
    this.since = Date.now() / 1000;
    const close = stream('/api/v1/live', {
      event: 'sample',
      message: (data) => this.#take(data as Sample),
      disconnected: () => {
        this.#stale();
        // The session may have ended, which an event stream cannot tell.
        void session.load();
      },
    });
    this.#arm();
    return () => {
      close();
      clearTimeout(this.#watch);
      this.pulse = 'connecting';
      this.sample = null;
      this.sparks.clear();
      this.#recalled.clear();
    };
  }

  /** Calls with each sample until the returned function is called. */
  listen(listener: (sample: Sample) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Fills in what was before the stream began, for as many databases as may be on the screen. */
  async recall(databases: string[]): Promise<void> {
    if (!session.answers('/history')) return;
    for (const database of databases.slice(0, SPARKS_RECALLED)) {
      if (this.#recalled.has(database)) continue;
      this.#recalled.add(database);
      try {
        const past = (await history(database, { seconds: SPARK_POINTS })).series['xact_rate'] ?? [];
        const since = this.sparks.get(database) ?? [];
        const before = past.slice(0, Math.max(0, past.length - since.length)).map((value) => value ?? 0);
        this.sparks.set(database, [...before, ...since].slice(-SPARK_POINTS));
      } catch {
        // The line begins now, then.
        return;
      }
    }
  }

  #take(sample: Sample): void {
    for (const { database, xact_rate } of sample.databases) {
      const spark = this.sparks.get(database) ?? [];
      spark.push(xact_rate);
      if (spark.length > SPARK_POINTS) spark.shift();
      this.sparks.set(database, spark);
    }
    this.sample = sample;
    this.pulse = 'live';
    this.since = Date.now() / 1000;
    this.#arm();
    for (const listener of this.#listeners) listener(sample);
  }

  #arm(): void {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => this.#stale(), STALE_MS);
  }

  #stale(): void {
    this.pulse = this.sample === null ? 'connecting' : 'stale';
  }
}

/** One row a database: its users' pools added up. */
function summed(pools: PoolSample[]): Map<string, PoolSample> {
  const sums = new Map<string, PoolSample>();
  for (const pool of pools) {
    const sum = sums.get(pool.database);
    if (!sum) {
      sums.set(pool.database, { ...pool });
      continue;
    }
    sum.cl_active += pool.cl_active;
    sum.cl_waiting += pool.cl_waiting;
    sum.sv_active += pool.sv_active;
    sum.sv_idle += pool.sv_idle;
    sum.sv_used += pool.sv_used;
    sum.sv_login += pool.sv_login;
    sum.maxwait_us = Math.max(sum.maxwait_us, pool.maxwait_us);
  }
  return sums;
}

/** Seconds since the epoch, however the server wrote it. */
export function epoch(time: string | number): number {
  if (typeof time === 'string') return Date.parse(time) / 1000;
  return time > 1e11 ? time / 1000 : time;
}

export const live = new Live();
