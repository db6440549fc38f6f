// Alerts: what is wrong, and what was.
import { get } from './call';

export interface Alert {
  alert: 'waiting' | 'server_down' | 'budget' | 'errors';
  state: 'firing' | 'cleared';
  subject: string;
  text: string;
  since: string;
  cleared: string | null;
}

export function alerts(signal?: AbortSignal): Promise<{ alerts: Alert[]; webhook: boolean }> {
  return get('/alerts', signal);
}
