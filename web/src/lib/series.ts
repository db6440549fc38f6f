// The last samples of some named lines over one time axis, for a chart: columns of equal length, oldest first.

export type Values = (number | null)[];

export class Series {
  /** Seconds since the epoch. */
  readonly times: number[] = [];
  readonly columns: Record<string, Values> = {};

  constructor(readonly capacity: number) {}

  /** Puts a sample at the end; a line it does not name has a gap there. */
  push(time: number, sample: Record<string, number | null>): void {
    const last = this.times.at(-1);
    if (last !== undefined && time <= last) return;
    for (const name of Object.keys(sample)) this.columns[name] ??= this.times.map(() => null);
    this.times.push(time);
    for (const [name, column] of Object.entries(this.columns)) column.push(sample[name] ?? null);
    if (this.times.length <= this.capacity) return;
    this.times.shift();
    for (const column of Object.values(this.columns)) column.shift();
  }

  /** Puts what was before the first sample in front. */
  prepend(from: number, step: number, past: Record<string, Values>): void {
    const length = Math.max(0, ...Object.values(past).map((column) => column.length));
    const first = this.times[0] ?? Number.POSITIVE_INFINITY;
    // Before anything was known there is nothing to draw.
    const known = Object.values(past).map((column) => column.findIndex((value) => value !== null)).filter((index) => index >= 0);
    const begin = known.length > 0 ? Math.min(...known) : length;
    const times = Array.from({ length }, (_, index) => from + index * step).filter((time) => time < first);
    const room = Math.max(0, this.capacity - this.times.length);
    const kept = times.slice(Math.max(begin, times.length - room));
    const start = times.length - kept.length;
    for (const name of Object.keys(past)) this.columns[name] ??= this.times.map(() => null);
    for (const [name, column] of Object.entries(this.columns)) {
      column.unshift(...kept.map((_, index) => past[name]?.[start + index] ?? null));
    }
    this.times.unshift(...kept);
  }

  column(name: string): Values {
    return this.columns[name] ?? this.times.map(() => null);
  }
}
