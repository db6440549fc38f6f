// What the hosts of a pool were and how far they were behind: the past from the server, then, in a range that grows live, each live sample; a longer
// one is loaded again as it grows.
import * as api from '../api/activity';
import type { HostChange, Mark, Sample } from '../api/types';
import { Series, type Values } from '../lib/series';
import { LIVE_SECONDS } from '../lib/ranges';
import { epoch, live } from './live.svelte';

/** No range has more numbers than this. */
const CAPACITY = 1500;
const EVERY_MS = 10_000;

export interface HostPast {
  /** Host and port. */
  name: string;
  series: Series;
  /** What it was at the beginning, and each change since. */
  changes: HostChange[];
}

export class HostWatch {
  hosts = $state.raw<HostPast[]>([]);
  turn = $state(0);
  step = $state(1);
  marks = $state.raw<Mark[]>([]);
  /** The first and the last second that are shown. */
  from = $state(0);
  to = $state(0);

  constructor(
    readonly database: string,
    readonly span: api.Span,
  ) {}

  get isLive(): boolean {
    return 'seconds' in this.span && this.span.seconds <= LIVE_SECONDS;
  }

  /** Starts watching; the returned function stops it. */
  start(): () => void {
    const controller = new AbortController();
    let leave = () => {};
    let timer: ReturnType<typeof setInterval> | undefined;
    const load = async () => {
      await this.#load(controller.signal);
      if (controller.signal.aborted || !this.isLive) return;
      leave = live.listen((sample) => this.#take(sample));
    };
    void load();
    if (!this.isLive && 'seconds' in this.span) timer = setInterval(() => void load(), EVERY_MS);
    return () => {
      controller.abort();
      clearInterval(timer);
      leave();
    };
  }

  async #load(signal: AbortSignal): Promise<void> {
    try {
      const { from, step_seconds: step, hosts, marks } = await api.hostHistory(this.database, this.span, signal);
      this.hosts = hosts.map(({ host, lag_bytes, lag_seconds, changes }) => {
        const series = new Series(this.isLive ? LIVE_SECONDS : CAPACITY);
        const us: Values = lag_seconds.map((value) => (value === null ? null : value * 1e6));
        // Always known, so that the chart begins where the range does.
        series.prepend(from, step, { range: lag_bytes.map(() => 0), lag_bytes, lag_us: us });
        return { name: host, series, changes };
      });
      const length = Math.max(1, ...hosts.map(({ lag_bytes }) => lag_bytes.length));
      [this.from, this.to, this.step, this.marks] = [from, from + (length - 1) * step, step, marks];
      this.turn += 1;
    } catch {
      // What was loaded before stays; a range that grows live begins now.
    }
  }

  #take(sample: Sample): void {
    const t = Math.floor(epoch(sample.t));
    if (t <= this.to) return;
    const own = sample.hosts.filter(({ database }) => database === this.database);
    const hosts = [...this.hosts];
    for (const { host, port, state, timeline, lag_bytes, lag_seconds } of own) {
      const name = `${host}:${port}`;
      let place = hosts.findIndex((one) => one.name === name);
      if (place < 0) place = hosts.push({ name, series: new Series(LIVE_SECONDS), changes: [] }) - 1;
      const past = hosts[place] as HostPast;
      past.series.push(t, { lag_bytes, lag_us: lag_seconds === null ? null : lag_seconds * 1e6 });
      const last = past.changes.at(-1);
      const known = timeline ?? last?.timeline ?? null;
      if (last?.state !== state || last.timeline !== known) {
        hosts[place] = { ...past, changes: [...past.changes, { t, state, timeline: known }] };
      }
    }
    this.hosts = hosts;
    this.to = t;
    this.from = 'seconds' in this.span ? t - this.span.seconds + 1 : this.from;
    this.turn += 1;
  }
}
