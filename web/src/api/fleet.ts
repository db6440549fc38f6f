// The fleet: its nodes, and the limits of server connections that they share.
import { get } from './call';
import type { Fleet } from './types';

export function fleet(signal?: AbortSignal): Promise<Fleet> {
  return get('/fleet', signal);
}
