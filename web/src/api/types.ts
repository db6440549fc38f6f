// The shapes of /api/v1, as the server's OpenAPI document has them. Durations are in seconds unless the name says us (microseconds);
// times are RFC 3339.

export type Scope = 'read' | 'operate' | 'admin' | 'view_credentials';

export interface Session {
  user: string;
  scopes: Scope[];
  csrf: string;
  version: string;
  methods: string[];
}

export interface Budget {
  max_connections: number;
  reserved: number;
  used_by_pools: number;
  free: number;
  /** False until a server has told its max_connections. */
  known: boolean;
}

/** Why nobody gets to a server: no login has gone well since. */
export interface ServerError {
  message: string;
  since: string;
  last: string;
}

export interface Cluster {
  id: string;
  host: string;
  port: number;
  databases: string[];
  server_version?: string | null;
  server_error?: ServerError | null;
  budget: Budget;
}

export type Mode = 'session' | 'transaction' | 'statement';

export interface PoolLive {
  clients_active: number;
  clients_waiting: number;
  servers_active: number;
  servers_idle: number;
  servers_used: number;
  servers_login: number;
  maxwait_seconds: number;
}

export interface Pool {
  name: string;
  cluster_id: string;
  db: string;
  /** Null: whoever logs in ("inbound user"). */
  user: string | null;
  mode: Mode;
  size: number;
  origin: 'panel' | 'file';
  writable: boolean;
  file?: string | null;
  line?: number | null;
  paused: boolean;
  disabled: boolean;
  server_error?: ServerError | null;
  live: PoolLive;
}

/** How to get to a pool, in the forms that people paste. */
interface ConnectionForms {
  uri: string;
  flags: string;
  psql: string;
  jdbc: string;
  env: string;
}

export interface Connection extends ConnectionForms {
  /** The same with a mask where the password stands. */
  masked: ConnectionForms;
  host: string;
  port: number;
  database: string;
  user: string;
  password: string;
  /** Why there is no password to show. */
  password_reason?: string | null;
  sslmode: string;
  ca_available: boolean;
}

export interface PoolDetails extends Pool {
  connection: Connection;
  parts: { database: string; user: string; live: PoolLive }[];
}

export interface PoolWish {
  name: string;
  db: string;
  user: string | null;
  mode: Mode;
  size: number;
  cluster_id: string;
}

export interface DiffLine {
  line: number;
  before: string | null;
  after: string | null;
}

export interface Preview {
  diff: DiffLine[];
  budget: Budget;
  warnings: string[];
}

/** What a client and a server have alike. */
interface Peer {
  shard: number;
  user: string;
  database: string;
  state: string;
  address: string;
  port: number;
  application_name: string;
  connect_time: string;
  request_time: string | null;
  prepared_statements: number;
  tls: string;
  pinned_reason: string | null;
}

export interface Client extends Peer {
  id: number;
  wait_seconds: number;
}

export interface Server extends Peer {
  server_id: number;
  remote_pid: number;
  /** `id` of the client that has it, in hexadecimal; empty if none has. */
  link: string;
}

export interface Query {
  fingerprint: string;
  database: string;
  text: string;
  calls: number;
  total_seconds: number;
  mean_seconds: number;
  p95_seconds: number | null;
  max_seconds: number;
  errors: number;
  /** Of its database's time, between 0 and 1. */
  share: number;
  since: string;
}

export interface QueryDetails extends Query {
  history: History;
}

/** What EXPLAIN says of a statement without its values. */
export interface Plan {
  statement: string;
  lines: string[];
  generic: boolean;
}

export interface Percentiles {
  p50: number | null;
  p95: number | null;
  p99: number | null;
}

export interface PoolSample {
  database: string;
  user: string;
  cl_active: number;
  cl_waiting: number;
  sv_active: number;
  sv_idle: number;
  sv_used: number;
  sv_login: number;
  maxwait_us: number;
}

export interface DatabaseSample {
  database: string;
  xact_rate: number;
  query_rate: number;
  wait_us_avg: number;
  xact_us: Percentiles;
  query_us: Percentiles;
  wait_us: Percentiles;
  errors_rate: number;
  errors: ErrorSample[];
}

/** Errors with one code: since the start of Weir, and a second since the sample before. */
export interface ErrorSample {
  sqlstate: string;
  count: number;
  rate: number;
}

export interface Sample {
  t: string | number;
  pools: PoolSample[];
  databases: DatabaseSample[];
  totals: { clients: number; servers: number; cpu_percent: number; rss_bytes: number };
}

/** What changed what is drawn. */
export interface Mark {
  t: number;
  kind: TrailKind;
  text: string;
  user: string;
}

export interface History {
  step_seconds: number;
  from: string | number;
  series: Record<string, (number | null)[]>;
  marks: Mark[];
}

export type TrailKind = 'login' | 'edit' | 'operation' | 'lab' | 'reload' | 'start' | 'takeover';

/** One line of the audit trail. */
export interface TrailEntry {
  number: number;
  time: string;
  kind: TrailKind;
  user: string;
  from: string;
  text: string;
  pool: string | null;
  status: number;
}

export interface Setting {
  name: string;
  section: string;
  value: string | null;
  default: string | null;
  unit?: string | null;
  type: string;
  doc: string;
  reloadable: boolean;
  effect: 'reload' | 'reconnect' | 'restart' | 'none';
  changed: boolean;
}

export type LabState = 'running' | 'done' | 'failed' | 'interrupted';

export interface LabWish {
  kind: 'compare' | 'sweep';
  workload: string;
  clients: number[];
  pool_sizes: number[];
  /** Null: as the lab has it. */
  seconds: number | null;
  rounds: number | null;
  quick: boolean;
  target: { pool: string } | { embedded: true };
}

export interface LabRun {
  id: string;
  kind: 'compare' | 'sweep';
  state: LabState;
  started: string;
  ended?: string | null;
  args: Partial<LabWish>;
  advice?: { size: number | null; verdict: string; doubts: string[]; line: string | null } | null;
  /** There is a report to read. */
  report: boolean;
  /** Why it failed. */
  error?: string | null;
}
