// The form of a pool: what is typed, what of it can be told wrong without asking the server, and what is sent.
import type { Cluster, Mode, Pool, CreatePool } from '../api/types';

export interface Draft {
  name: string;
  cluster_id: string;
  db: string;
  inbound: boolean;
  user: string;
  mode: Mode;
  /** The pool finds its size itself, between `auto_pool_size_min` and `auto_pool_size_max` of its settings. */
  auto: boolean;
  size: string;
  /** Other keys of the entry, as a file has them; empty is the default. */
  settings: Record<string, string>;
}

/** In place of a cluster: the pool's settings name its servers. */
export const OWN_SERVERS = 'own';

/** By field; those of settings as `settings.` and the name. */
export type Problems = Partial<Record<string, string>>;

export const MODES: { id: Mode; label: string; description: string }[] = [
  { id: 'transaction', label: 'Transaction', description: 'A client has a server connection for a transaction. Right for most applications.' },
  { id: 'session', label: 'Session', description: 'A client has it until it disconnects: everything works, few clients share.' },
  { id: 'statement', label: 'Statement', description: 'A client has it for one statement; transactions of several statements are refused.' },
];

export function draft(pool: Pool | null, clusters: Cluster[]): Draft {
  const cluster = clusters.find((one) => one.id === pool?.cluster_id) ?? reachable(clusters);
  return {
    name: pool?.name ?? '',
    cluster_id: cluster?.id ?? '',
    db: pool?.db ?? '',
    // An application has one user: that is what a pool is made for most often.
    inbound: pool ? pool.user === null : false,
    user: pool?.user ?? '',
    mode: pool?.mode ?? 'transaction',
    auto: pool !== null && (pool.size_setting === 'auto' || (pool.size_setting === null && pool.auto_size !== null)),
    size: String(pool?.size ?? 10),
    settings: { ...pool?.settings },
  };
}

/** The cluster that a new pool is most likely for: one that answers; none where several are there and none does. */
function reachable(clusters: Cluster[]): Cluster | undefined {
  if (clusters.length === 1) return clusters[0];
  return clusters.find((one) => one.budget.known) ?? clusters.find((one) => !one.server_error);
}

/** Settings that have fields of their own in the form. */
export const BOUNDS = ['auto_pool_size_min', 'auto_pool_size_max'] as const;

/** The most server connections that the pool may have, as far as the form says so. */
export const largestOf = (typed: Draft) => (typed.auto ? wholeOf(typed.settings.auto_pool_size_max ?? '') : sizeOf(typed));

const wholeOf = (text: string) => (/^\d{1,9}$/.test(text.trim()) ? Number(text) : undefined);

export const sizeOf = ({ size }: Draft) => wholeOf(size);

/** Only what every server would refuse; all else is the server's to say. */
export function problems(typed: Draft): Problems {
  const found: Problems = {};
  if (typed.name.trim() === '') found.name = 'A pool needs a name: clients give it as the name of the database.';
  if (typed.cluster_id === '') found.cluster_id = 'Choose a cluster.';
  if (typed.cluster_id === OWN_SERVERS && !typed.settings.host?.trim() && !typed.settings.topology?.trim()) found['settings.host'] = 'Name its servers, or Patroni in topology.';
  if (typed.db.trim() === '') found.db = 'Choose a database.';
  if (!typed.inbound && typed.user.trim() === '') found.user = 'A user is needed, or choose the inbound user.';
  const size = typed.auto ? 1 : sizeOf(typed);
  if (size === undefined) found.size = 'The size is a whole number.';
  else if (size < 1) found.size = 'A pool has at least one server connection.';
  return found;
}

/** `before`: the settings of the pool as it is. Those that are as before are not sent, and stay. */
export function createPool(typed: Draft, before: Record<string, string>): CreatePool {
  const changed = Object.entries(typed.settings).filter(([name, value]) => value.trim() !== (before[name] ?? ''));
  return {
    name: typed.name.trim(),
    cluster_id: typed.cluster_id === OWN_SERVERS ? null : typed.cluster_id,
    db: typed.db.trim(),
    user: typed.inbound ? null : typed.user.trim(),
    mode: typed.mode,
    // As a text, so that a number is meant even where the pool was auto with this as its largest size.
    size: typed.auto ? 'auto' : typed.size.trim(),
    settings: Object.fromEntries(changed.map(([name, value]) => [name, value.trim() || null])),
  };
}
