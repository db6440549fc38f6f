// A span of a pool's past that is longer than what is watched live, or that was chosen in a chart: loaded whole, and again as it grows.
import * as api from '../api/activity';
import type { Mark } from '../api/types';
import { errorLines, errorsOf } from '../lib/errors';
import type { Line } from '../lib/plot';
import { Series } from '../lib/series';
import { epoch } from './live.svelte';

/** A longer span has no more numbers than this. */
const CAPACITY = 1500;

const EVERY_MS = 10_000;

export class Older {
  series = $state.raw(new Series(CAPACITY));
  turn = $state(0);
  step = $state(0);
  errorLines = $state.raw<Line[]>([]);
  marks = $state.raw<Mark[]>([]);

  constructor(
    readonly database: string,
    readonly span: api.Span,
  ) {}

  /** Starts loading; the returned function stops it. */
  start(): () => void {
    const controller = new AbortController();
    const load = () => void this.#load(controller.signal);
    load();
    const timer = 'seconds' in this.span ? setInterval(load, EVERY_MS) : undefined;
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }

  async #load(signal: AbortSignal): Promise<void> {
    try {
      const { from, step_seconds, series, marks } = await api.history(this.database, this.span, signal);
      const loaded = new Series(CAPACITY);
      loaded.prepend(epoch(from), step_seconds, series);
      this.series = loaded;
      this.step = step_seconds;
      this.marks = marks;
      const lines = errorLines(errorsOf(series));
      if (lines.map(({ name }) => name).join() !== this.errorLines.map(({ name }) => name).join()) this.errorLines = lines;
      this.turn += 1;
    } catch {
      // What was loaded before stays; it is tried again.
    }
  }
}
