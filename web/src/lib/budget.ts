// A server's connections: reserved, those of the other pools, those of one pool, and whether they fit.
import type { Budget } from '../api/types';

/** From this share of what pools may have, a warning. */
const CROWDED = 0.8;

export interface Reckoning {
  /** What pools may have in all. */
  room: number;
  others: number;
  size: number;
  free: number;
  share: number;
  verdict: 'fine' | 'crowded' | 'over' | 'unknown';
}

/** `current`: what the pool in question already counts for in the budget. */
export function connectionUse(budget: Budget, size: number, current: number): Reckoning {
  const room = Math.max(0, budget.max_connections - budget.reserved);
  const others = Math.max(0, budget.used_by_pools - current);
  const share = room > 0 ? (others + size) / room : 0;
  const verdict = !budget.known ? 'unknown' : others + size > room ? 'over' : share > CROWDED ? 'crowded' : 'fine';
  return { room, others, size, free: Math.max(0, room - others - size), share, verdict };
}
