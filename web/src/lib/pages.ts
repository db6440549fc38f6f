// The pages, in the order of the menu, each with the route of the API that it cannot do without: the panel shows the pages whose routes this Weir has.
import type { Scope } from '../api/types';
import type { IconName } from '../components/Icon.svelte';

export interface PageEntry {
  path: IconName & string;
  label: string;
  needs: string;
  /** Only for callers with this scope. */
  scope?: Scope;
  /** In the menu only where this process is a node of a fleet. */
  ofFleet?: true;
}

export const PAGES: PageEntry[] = [
  { path: 'pools', label: 'Pools', needs: '/pools' },
  { path: 'clusters', label: 'Clusters', needs: '/clusters' },
  { path: 'fleet', label: 'Fleet', needs: '/fleet', ofFleet: true },
  { path: 'clients', label: 'Clients', needs: '/clients' },
  { path: 'servers', label: 'Servers', needs: '/servers' },
  { path: 'queries', label: 'Queries', needs: '/queries' },
  { path: 'quotas', label: 'Quotas', needs: '/quotas' },
  { path: 'lab', label: 'Lab', needs: '/lab/runs' },
  { path: 'alerts', label: 'Alerts', needs: '/alerts' },
  { path: 'users', label: 'Users', needs: '/users', scope: 'admin' },
  { path: 'audit', label: 'Audit', needs: '/audit', scope: 'admin' },
  { path: 'log', label: 'Log', needs: '/log' },
  { path: 'settings', label: 'Settings', needs: '/settings' },
];
