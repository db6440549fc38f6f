// Alerts: active and cleared.
import { get } from './call';
import type { Alert } from './types';

export function alerts(signal?: AbortSignal): Promise<{ alerts: Alert[]; webhook: boolean }> {
  return get('/alerts', signal);
}
