// The shapes of /api/v1 by the names that the pages use. The shapes themselves are generated from the server's OpenAPI document
// (schema.ts, by scripts/panel-api). Durations are in seconds unless the name says us (microseconds); times are RFC 3339.
import type { components } from './schema';

type Schemas = components['schemas'];

export type Scope = Schemas['ScopeName'];
export type Session = Schemas['SessionInfo'];
export type Budget = Schemas['BudgetView'];
export type ServerError = Schemas['ServerErrorView'];
export type Cluster = Schemas['ClusterView'];
export type Mode = Schemas['Mode'];
export type PoolCounts = Schemas['PoolCounts'];
export type Pool = Schemas['PoolView'];
export type Connection = Schemas['PoolConnection'];
export type PoolDetails = Schemas['PoolDetails'];
/** As the form sends it: with every field. */
export type CreatePool = Required<Schemas['CreatePool']>;
export type DiffLine = Schemas['DiffLine'];
export type Preview = Schemas['ChangePreview'];
export type Client = Schemas['Client'];
export type Server = Schemas['Server'];
export type Fleet = Schemas['Fleet'];
export type FleetNode = Schemas['FleetNodeView'];
export type FleetBudget = Schemas['FleetBudgetView'];
export type FleetClientLimit = Schemas['FleetClientLimitView'];
export type Cache = Schemas['CacheView'];
export type PoolSize = Schemas['PoolSizeView'];
export type PoolSizeHistory = Schemas['PoolSizeHistory'];
export type UsageHistory = Schemas['HistorySeries'];
export type Queues = Schemas['Queues'];
export type Host = Schemas['HostView'];
export type Hosts = Schemas['Hosts'];
export type HostsHistory = Schemas['HostsHistory'];
export type HostChange = Schemas['HostChange'];
export type HostSample = Schemas['HostSample'];
export type Query = Schemas['QueryView'];
export type QueryDetails = Schemas['QueryDetails'];
export type QueryPlan = Schemas['QueryPlan'];
export type Percentiles = Schemas['Quantiles'];
export type PoolSample = Schemas['PoolSample'];
export type DatabaseSample = Schemas['DatabaseSample'];
export type ErrorSample = Schemas['ErrorSample'];
export type Sample = Schemas['LiveSample'];
export type Mark = Schemas['Mark'];
export type History = Schemas['History'];
export type QueryHistory = Schemas['QueryHistory'];
export type AuditKind = Schemas['AuditKind'];
export type AuditEntry = Schemas['AuditEntryView'];
export type Setting = Schemas['Setting'];
export type PoolSetting = Schemas['PoolSetting'];
export type RunState = Schemas['RunState'];
/** As the form sends it: with every field. */
export type StartRun = Required<Schemas['StartRun']>;
export type LabRun = Schemas['LabRunView'];
export type LabRuns = Schemas['LabRuns'];
export type Alert = Schemas['Alert'];
export type UserEntry = Schemas['UserEntry'];
export type Quota = Schemas['QuotaView'];
export type QuotaUnit = Schemas['QuotaUnit'];
export type OwnQuotas = Schemas['OwnQuotas'];
export type QuotaDefaults = Schemas['QuotaDefaults'];
export type DefaultLimit = Schemas['DefaultLimit'];
