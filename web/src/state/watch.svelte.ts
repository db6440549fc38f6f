// What one pool did in the last ten minutes: its past from the server, then each live sample, then its errors by SQLSTATE, which are
// counters that become rates here.
import * as api from '../api/activity';
import type { ErrorCount, Sample } from '../api/types';
import type { Line } from '../lib/plot';
import { Series } from '../lib/series';
import { epoch, live } from './live.svelte';
import { session } from './session.svelte';

const CAPACITY = 600;
const ERRORS_EVERY_MS = 2000;
const ERROR_LINES = 5;

export class Watch {
  readonly series = new Series(CAPACITY);
  readonly errors = new Series(CAPACITY / 2);
  turn = $state(0);
  errorsTurn = $state(0);
  errorLines = $state.raw<Line[]>([]);
  #before: { time: number; counts: Map<string, number> } | null = null;

  constructor(readonly database: string) {}

  /** Begins to watch; the function that comes back ends it. */
  start(): () => void {
    const controller = new AbortController();
    const leave = live.listen((sample) => this.#take(sample));
    if (session.answers('/history')) void this.#past(controller.signal);
    const count = () => session.answers('/errors') && void this.#count(controller.signal);
    count();
    const timer = setInterval(count, ERRORS_EVERY_MS);
    return () => {
      leave();
      clearInterval(timer);
      controller.abort();
    };
  }

  async #past(signal: AbortSignal): Promise<void> {
    try {
      const { from, step_seconds, series } = await api.history(this.database, CAPACITY, signal);
      this.series.prepend(epoch(from), step_seconds, series);
      this.turn += 1;
    } catch {
      // Without a past the charts begin now.
    }
  }

  #take(sample: Sample): void {
    const database = sample.databases.find((one) => one.database === this.database);
    const pool = live.pools.get(this.database);
    this.series.push(epoch(sample.t), {
      xact_rate: database?.xact_rate ?? 0,
      query_rate: database?.query_rate ?? 0,
      'xact_us.p50': database?.xact_us.p50 ?? null,
      'xact_us.p95': database?.xact_us.p95 ?? null,
      'xact_us.p99': database?.xact_us.p99 ?? null,
      'wait_us.p95': database?.wait_us.p95 ?? null,
      cl_active: pool?.cl_active ?? 0,
      cl_waiting: pool?.cl_waiting ?? 0,
      sv_active: pool?.sv_active ?? 0,
      sv_idle: pool?.sv_idle ?? 0,
      sv_used: pool?.sv_used ?? 0,
      sv_login: pool?.sv_login ?? 0,
    });
    this.turn += 1;
  }

  async #count(signal: AbortSignal): Promise<void> {
    try {
      this.#rates(await api.errors(this.database, signal), Date.now() / 1000);
    } catch {
      // A gap in the chart says it.
    }
  }

  #rates(found: ErrorCount[], time: number): void {
    const counts = new Map(found.map(({ sqlstate, count }) => [sqlstate, count]));
    const before = this.#before;
    this.#before = { time, counts };
    if (!before) return;
    const passed = Math.max(0.5, time - before.time);
    const rates = [...counts].map(([state, count]) => [state, Math.max(0, count - (before.counts.get(state) ?? 0)) / passed] as const);
    this.errors.push(Math.round(time), Object.fromEntries(rates));
    const most = [...found].sort((one, other) => other.count - one.count).slice(0, ERROR_LINES);
    const names = most.map(({ sqlstate }) => sqlstate).sort();
    if (names.join() !== this.errorLines.map((line) => line.name).join()) {
      this.errorLines = names.map((name, index) => ({ name, label: name, colour: index + 1 }));
    }
    this.errorsTurn += 1;
  }
}
