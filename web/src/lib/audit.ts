// Words for the kinds of the audit trail.
import type { AuditKind } from '../api/types';

export const KINDS: Record<AuditKind, string> = {
  login: 'Login',
  edit: 'Edit',
  operation: 'Command',
  lab: 'Lab',
  reload: 'Reload',
  start: 'Start',
  takeover: 'Takeover',
  pool_size: 'Pool size',
};
