// The past of some figures for charts: loaded whole, and again as it grows. What was loaded before stays while Weir is unreachable.
import type { Span } from '../api/activity';
import type { Mark } from '../api/types';
import { Series, type Values } from '../lib/series';
import { epoch } from './live.svelte';

/** A span has no more numbers than this. */
const CAPACITY = 1500;

export interface Loaded {
  from: number;
  step_seconds: number;
  series: Record<string, Values>;
  marks?: Mark[];
}

export class Past {
  series = $state.raw(new Series(CAPACITY));
  turn = $state(0);
  step = $state(1);
  marks = $state.raw<Mark[]>([]);

  constructor(
    readonly span: Span,
    readonly load: (span: Span, signal: AbortSignal) => Promise<Loaded>,
    readonly everyMs: number,
  ) {}

  /** Starts loading; the returned function stops it. */
  start(): () => void {
    const controller = new AbortController();
    const load = () => void this.#load(controller.signal);
    load();
    const timer = 'seconds' in this.span ? setInterval(load, this.everyMs) : undefined;
    return () => {
      clearInterval(timer);
      controller.abort();
    };
  }

  async #load(signal: AbortSignal): Promise<void> {
    try {
      const { from, step_seconds, series, marks = [] } = await this.load(this.span, signal);
      const loaded = new Series(CAPACITY);
      loaded.prepend(epoch(from), step_seconds, series);
      [this.series, this.step, this.marks] = [loaded, step_seconds, marks];
      this.turn += 1;
    } catch {
      // Tried again.
    }
  }
}
