// The curve that grows while a lab run runs: what was measured so far, a column for each pool size (or target), its runs as dots and their
// medians as a line.
import type { Outcome } from '../state/progress.svelte';

export interface Column {
  label: string;
  tps: number[];
  median: number;
}

/** Columns from the smallest size on; what has no size (directly) comes first. Runs with the most clients only: others are another curve. */
export function columns(outcomes: Outcome[]): Column[] {
  const whole = outcomes.flatMap(({ place, tps, ended }) => (place && ended === 'whole' ? [{ ...place, tps }] : []));
  const clients = Math.max(0, ...whole.map((one) => one.clients));
  const found = new Map<string, { size: number; tps: number[] }>();
  for (const { target, size, tps } of whole.filter((one) => one.clients === clients)) {
    const label = size === null ? target : target === 'weir' ? String(size) : `${target} ${size}`;
    const column = found.get(label) ?? { size: size ?? 0, tps: [] };
    column.tps.push(tps);
    found.set(label, column);
  }
  const sorted = [...found].sort(([, one], [, other]) => one.size - other.size);
  return sorted.map(([label, { tps }]) => ({ label, tps, median: median(tps) }));
}

function median(values: number[]): number {
  const sorted = [...values].sort((one, other) => one - other);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
}
