// Errors by SQLSTATE as lines of a chart, and as words beside it.
import type { ErrorSample } from '../api/types';
import { count } from './format';
import type { Line } from './plot';

/** The seconds that are shown. */
export const CAPACITY = 600;

/** More lines could not be told apart; the other codes are listed as text. */
const LINES = 5;

/** As the history names the series. */
export const errorName = (sqlstate: string) => `errors.${sqlstate}`;

/** The most frequent codes, in the order of the codes, so that a colour changes seldom. */
export function errorLines(errors: ErrorSample[]): Line[] {
  const most = errors.slice(0, LINES).map(({ sqlstate }) => sqlstate);
  return most.sort().map((code, index) => ({ name: errorName(code), label: code, colour: index + 1 }));
}

/** What stands behind each line: how many there were since the start. */
export function totals(lines: Line[], errors: ErrorSample[]): string[] {
  return lines.map(({ label }) => `${count(errors.find(({ sqlstate }) => sqlstate === label)?.count ?? 0)} in all`);
}

/** The codes that have no line. */
export function others(errors: ErrorSample[]): string {
  return errors.slice(LINES).map(({ sqlstate, count: total }) => `${sqlstate} ${count(total)}`).join(', ');
}

/** The codes of a past, the most frequent first. */
export function errorsOf(series: Record<string, (number | null)[]>): ErrorSample[] {
  const named = Object.entries(series).filter(([name]) => name.startsWith('errors.'));
  const summed = named.map(([name, column]) => ({ sqlstate: name.slice('errors.'.length), count: column.reduce<number>((sum, rate) => sum + (rate ?? 0), 0), rate: 0 }));
  return summed.filter(({ count: sum }) => sum > 0).sort((one, other) => other.count - one.count);
}
