// What pages say about a pool: its user, its state, its numbers of this moment.
import type { Pool, PoolSample } from '../api/types';

export const userOf = (pool: Pool) => pool.user ?? 'inbound user';

export const whereFrom = (pool: Pool) => (pool.file ? `${pool.file}${pool.line ? `:${pool.line}` : ''}` : 'the configuration file');

export interface Levels {
  active: number;
  idle: number;
  waiting: number;
  clients: number;
  maxwait_us: number;
}

/** From the newest sample, or from the listing while there is none. */
export function levels(pool: Pool, sample: PoolSample | undefined): Levels {
  if (sample) {
    return {
      active: sample.sv_active + sample.sv_login,
      idle: sample.sv_idle + sample.sv_used,
      waiting: sample.cl_waiting,
      clients: sample.cl_active + sample.cl_waiting,
      maxwait_us: sample.maxwait_us,
    };
  }
  const { live } = pool;
  return {
    active: live.servers_active + live.servers_login,
    idle: live.servers_idle + live.servers_used,
    waiting: live.clients_waiting,
    clients: live.clients_active + live.clients_waiting,
    maxwait_us: live.maxwait_seconds * 1_000_000,
  };
}

/** The size; of a pool that finds it itself its bounds. */
export const sizeText = ({ size, auto_size }: Pool) => (auto_size ? `auto, ${auto_size.min}–${auto_size.max}` : String(size));
