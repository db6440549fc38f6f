// The words of a fleet's page.
import type { FleetBudget } from '../api/types';

/** The badge of a node's state; a state that is not here has the plain one. */
export const TONES: Record<string, string> = { up: 'good', draining: 'warn', joining: 'warn', leaving: 'warn', gone: 'bad', alone: 'bad', taken: 'bad' };

/** Whether a node in this state is sure of its lease: one that is not has only its last knowledge of the others. */
export function hasLease(state: string): boolean {
  return state === 'up' || state === 'draining';
}

/** What a limit is of: a pool, an entry or a user. */
export function nameOf({ database, user, host }: FleetBudget): string {
  const pool = [database, user].filter((name) => name !== null).join(' / ');
  return host === null ? pool : `${pool} on ${host}`;
}

/** The setting that a limit comes of. */
export function settingOf(kind: string): string {
  return ({ pool: 'pool_size', database: 'max_db_connections', user: 'max_user_connections' } as Record<string, string>)[kind] ?? kind;
}

/** The setting that a limit of clients comes of. */
export function clientSettingOf(kind: string): string {
  return (
    ({ clients: 'max_client_conn', database: 'max_db_client_connections', user: 'max_user_client_connections' } as Record<string, string>)[kind] ?? kind
  );
}
