// The form of a lab run: what is typed, what of it is wrong, what is sent.
import type { LabWish } from '../api/types';

export const WORKLOADS: { id: string; says: string }[] = [
  { id: 'tpcb-like', says: "pgbench's own: reads and writes, with hot rows" },
  { id: 'simple-update', says: 'the same without the hot rows' },
  { id: 'select-only', says: 'one short read' },
  { id: 'point-read', says: 'short reads, some rows asked for often' },
  { id: 'read-write', says: 'mostly reads, some writes' },
  { id: 'connect-storm', says: 'a new connection for each transaction' },
  { id: 'idle-heavy', says: 'many clients that mostly think' },
  { id: 'slow-mix', says: 'short queries beside slow ones' },
];

export interface LabDraft {
  kind: 'compare' | 'sweep';
  workload: string;
  clients: string;
  sizes: string;
  seconds: string;
  rounds: string;
  quick: boolean;
  /** Empty: a private PostgreSQL. */
  pool: string;
}

export type LabProblems = Partial<Record<'clients' | 'pool_sizes' | 'seconds' | 'rounds' | 'workload' | 'target', string>>;

export const beginning = (): LabDraft => ({
  kind: 'sweep',
  workload: 'tpcb-like',
  clients: '50',
  sizes: '1, 2, 4, 8, 16, 32',
  seconds: '10',
  rounds: '3',
  quick: true,
  pool: '',
});

/** Whole numbers of one and more between commas or spaces; undefined if something else is among them. */
export function numbers(text: string): number[] | undefined {
  const parts = text.split(/[\s,]+/).filter((part) => part !== '');
  return parts.length > 0 && parts.every((part) => /^[1-9]\d{0,5}$/.test(part)) ? parts.map(Number) : undefined;
}

export function labProblems(typed: LabDraft): LabProblems {
  const found: LabProblems = {};
  const LIST = 'Whole numbers with commas between them, as 50, 150.';
  if (!numbers(typed.clients)) found.clients = LIST;
  if (typed.kind === 'sweep' && !numbers(typed.sizes)) found.pool_sizes = LIST;
  if (numbers(typed.seconds)?.length !== 1) found.seconds = 'A whole number of seconds.';
  if (numbers(typed.rounds)?.length !== 1) found.rounds = 'A whole number of rounds.';
  return found;
}

export function labWish(typed: LabDraft): LabWish {
  return {
    kind: typed.kind,
    workload: typed.workload,
    clients: numbers(typed.clients) ?? [],
    pool_sizes: typed.kind === 'sweep' ? (numbers(typed.sizes) ?? []) : [],
    seconds: Number(typed.seconds),
    rounds: Number(typed.rounds),
    quick: typed.quick,
    target: typed.pool ? { pool: typed.pool } : { embedded: true },
  };
}

/** What a run was asked for, in a line. */
export function conditions({ target, clients = [], pool_sizes: sizes = [], seconds, rounds, quick }: Partial<LabWish>): string {
  const several = (count: number, what: string) => `${count} ${what}${count === 1 ? '' : 's'}`;
  return [
    target && 'pool' in target ? `the server of ${target.pool}` : 'a private PostgreSQL',
    clients.length > 0 && `${clients.join(', ')} clients`,
    sizes.length > 0 && `pool of ${sizes.join(', ')}`,
    seconds && `${several(seconds, 'second')} a run`,
    rounds && several(rounds, 'round'),
    quick && 'quick',
  ]
    .filter(Boolean)
    .join(' · ');
}
