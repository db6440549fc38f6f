// What one pool did in the last ten minutes: its past from the server, then each live sample. Errors by SQLSTATE are lines that come when there
// is an error with a new code; each has its total since the start of Weir beside it.
import * as api from '../api/activity';
import type { ErrorSample, Sample } from '../api/types';
import { CAPACITY, errorLines, errorName } from '../lib/errors';
import type { Line } from '../lib/plot';
import { Series } from '../lib/series';
import { epoch, live } from './live.svelte';
import { session } from './session.svelte';

export class Watch {
  readonly series = new Series(CAPACITY);
  turn = $state(0);
  /** By code, since the start of Weir, the most frequent first. */
  errors = $state.raw<ErrorSample[]>([]);
  errorLines = $state.raw<Line[]>([]);

  constructor(readonly database: string) {}

  /** Starts watching; the returned function stops it. */
  start(): () => void {
    const controller = new AbortController();
    const leave = live.listen((sample) => this.#take(sample));
    if (session.answers('/history')) void this.#past(controller.signal);
    return () => {
      leave();
      controller.abort();
    };
  }

  async #past(signal: AbortSignal): Promise<void> {
    try {
      const { from, step_seconds, series } = await api.history(this.database, { seconds: CAPACITY }, signal);
      this.series.prepend(epoch(from), step_seconds, series);
      this.turn += 1;
    } catch {
      // Without a history the charts begin now.
    }
  }

  #take(sample: Sample): void {
    const database = sample.databases.find((one) => one.database === this.database);
    const pool = live.pools.get(this.database);
    const errors = database?.errors ?? [];
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
      ...Object.fromEntries(errors.map(({ sqlstate, rate }) => [errorName(sqlstate), rate])),
    });
    this.errors = [...errors].sort((one, other) => other.count - one.count);
    const lines = errorLines(this.errors);
    // The same lines stay the same object: others are another chart.
    if (lines.map(({ name }) => name).join() !== this.errorLines.map(({ name }) => name).join()) this.errorLines = lines;
    this.turn += 1;
  }
}
