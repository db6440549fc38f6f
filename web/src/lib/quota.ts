// Figures of quotas for people and as the file has them, by their unit; and what the states mean. Knows no resource by name.
import type { QuotaUnit } from '../api/types';
import { count, NONE, span } from './format';

const POWERS = ['K', 'M', 'G', 'T'];
const SPANS: [string, number][] = [
  ['w', 604_800],
  ['d', 86_400],
  ['h', 3600],
  ['m', 60],
];
const tenth = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });

/** A figure in its unit. */
export function figure(unit: QuotaUnit, value: number): string {
  if (unit === 'seconds') return span(value);
  if (unit !== 'bytes') return count(value);
  const power = Math.min(Math.max(Math.floor(Math.log2(Math.max(value, 1)) / 10), 0), POWERS.length);
  return power === 0 ? `${count(value)} B` : `${tenth.format(value / 1024 ** power)} ${POWERS[power - 1]}iB`;
}

/** A limit: 0 is none. */
export function limit(unit: QuotaUnit, value: number): string {
  return value === 0 ? NONE : figure(unit, value);
}

/** As the file has it: with the largest unit that leaves a whole number. */
export function written(unit: QuotaUnit, value: number): string {
  if (unit !== 'bytes' || value === 0) return String(value);
  const power = POWERS.reduce((found, _, index) => (value % 1024 ** (index + 1) === 0 ? index + 1 : found), 0);
  return `${value / 1024 ** power}${power === 0 ? '' : POWERS[power - 1]}`;
}

export function writtenGrace(seconds: number): string {
  if (seconds === 0) return '0';
  // Weeks only where days would be many: seven days are the usual grace time.
  const unit = SPANS.find(([name, length]) => seconds % length === 0 && (name !== 'w' || seconds > length));
  return unit ? `${seconds / unit[1]}${unit[0]}` : `${seconds}s`;
}

/** How much of its limit was used: of the hard one, else of the soft one; null without either. */
export function share({ used, soft, hard }: { used: number; soft: number; hard: number }): number | null {
  const most = hard > 0 ? hard : soft;
  return most > 0 ? (100 * used) / most : null;
}

export const STATES = ['within', 'soft', 'grace', 'hard'];
const MEANS: Record<string, { label: string; tone: string; title: string }> = {
  within: { label: 'within', tone: '', title: 'At the soft limit or below' },
  soft: { label: 'above soft', tone: 'warn', title: 'Above the soft limit: sessions are warned, nothing is refused yet' },
  grace: { label: 'grace over', tone: 'bad', title: 'Above the soft limit, and the grace time is over: refused' },
  hard: { label: 'at hard', tone: 'bad', title: 'The hard limit is reached: refused' },
};

/** A state in words; one that is not known here by its own. */
export function stateOf(state: string): { label: string; tone: string; title: string } {
  return MEANS[state] ?? { label: state, tone: 'warn', title: '' };
}
