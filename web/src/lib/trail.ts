// Words for the kinds of the audit trail.
import type { TrailKind } from '../api/types';

export const KINDS: Record<TrailKind, string> = {
  login: 'Login',
  edit: 'Edit',
  operation: 'Command',
  lab: 'Lab',
  reload: 'Reload',
  start: 'Start',
  takeover: 'Takeover',
};
