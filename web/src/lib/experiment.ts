// The form of a lab run: what is typed, what of it is wrong, what is sent.
import type { StartRun } from '../api/types';

export const WORKLOADS: { id: string; description: string }[] = [
  { id: 'tpcb-like', description: "pgbench's own: reads and writes, with hot rows" },
  { id: 'simple-update', description: 'the same without the hot rows' },
  { id: 'select-only', description: 'one short read' },
  { id: 'point-read', description: 'short reads, some rows asked for often' },
  { id: 'read-write', description: 'mostly reads, some writes' },
  { id: 'connect-storm', description: 'a new connection for each transaction' },
  { id: 'idle-heavy', description: 'many clients that mostly think' },
  { id: 'slow-mix', description: 'short queries beside slow ones' },
];

export interface LabDraft {
  kind: 'compare' | 'sweep';
  workload: string;
  clients: string;
  sizes: string;
  /** Of a comparison; empty: the pool's own. */
  size: string;
  /** Empty: as the lab has it, quick or not. */
  seconds: string;
  rounds: string;
  quick: boolean;
  /** Empty: a private PostgreSQL. */
  pool: string;
}

export type LabProblems = Partial<Record<'clients' | 'pool_sizes' | 'seconds' | 'rounds' | 'workload' | 'target', string>>;

export const initial = (): LabDraft => ({
  kind: 'sweep',
  workload: 'tpcb-like',
  clients: '50',
  sizes: '1, 2, 4, 8, 16, 32',
  size: '',
  seconds: '',
  rounds: '',
  quick: true,
  pool: '',
});

/** Whole numbers of one and more between commas or spaces; undefined if something else is among them. */
export function numbers(text: string): number[] | undefined {
  const parts = text.split(/[\s,]+/).filter((part) => part !== '');
  return parts.length > 0 && parts.every((part) => /^[1-9]\d{0,5}$/.test(part)) ? parts.map(Number) : undefined;
}

/** Nothing, or one whole number. */
const isOne = (text: string) => text.trim() === '' || numbers(text)?.length === 1;

export function labProblems(typed: LabDraft): LabProblems {
  const found: LabProblems = {};
  const LIST = 'Whole numbers with commas between them, as 50, 150.';
  if (!numbers(typed.clients)) found.clients = LIST;
  if (typed.kind === 'sweep' && !numbers(typed.sizes)) found.pool_sizes = LIST;
  if (typed.kind === 'compare' && !isOne(typed.size)) found.pool_sizes = 'A whole number of server connections.';
  if (!isOne(typed.seconds)) found.seconds = 'A whole number of seconds.';
  if (!isOne(typed.rounds)) found.rounds = 'A whole number of rounds.';
  return found;
}

export function startRun(typed: LabDraft): StartRun {
  return {
    kind: typed.kind,
    workload: typed.workload,
    clients: numbers(typed.clients) ?? [],
    pool_sizes: numbers(typed.kind === 'sweep' ? typed.sizes : typed.size) ?? [],
    seconds: numbers(typed.seconds)?.[0] ?? null,
    rounds: numbers(typed.rounds)?.[0] ?? null,
    quick: typed.quick,
    target: typed.pool ? { pool: typed.pool } : { embedded: true },
  };
}

/** What the lab does where nothing is typed; `weir-bench --help` has the same numbers. */
export const defaults = (quick: boolean) => (quick ? { seconds: 2, warm_up: 1, rounds: 6, open_rounds: 1 } : { seconds: 20, warm_up: 4, rounds: 5, open_rounds: 3 });

const QUICK_SECONDS = 260;
const OPEN_LOOP_LOADS = 4;
/** Starting and ending the load of one run. */
const BESIDE_SECONDS = 1;

/** The estimated duration of a run in seconds; undefined while the form has errors. */
export function estimate(typed: LabDraft): number | undefined {
  if (Object.keys(labProblems(typed)).length > 0) return undefined;
  const sweeps = typed.kind === 'sweep';
  const { seconds, rounds, clients, pool_sizes: sizes, quick, target } = startRun(typed);
  const lab = defaults(quick);
  const repeats = rounds ?? lab.rounds;
  // A sweep is through Weir at each size and directly; a comparison through Weir and directly. Then loads that do not wait, through what counts.
  const points = clients.length * ((sweeps ? sizes.length : 1) + 1);
  const open = (sweeps ? 1 : 2) * OPEN_LOOP_LOADS * Math.min(lab.open_rounds, repeats);
  const runs = (points * repeats + open) * ((seconds ?? lab.seconds) + lab.warm_up + BESIDE_SECONDS);
  const before = 'pool' in target ? 10 : quick ? 15 : 60;
  return quick && rounds === null ? Math.min(runs + before, QUICK_SECONDS) : runs + before;
}

/** What a run was asked for, in a line. */
export function conditions({ target, clients = [], pool_sizes: sizes = [], seconds, rounds, quick }: Partial<StartRun>): string {
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
