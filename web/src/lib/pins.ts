// Why a client keeps its server connection outside of a request: the API's words and their explanations.

export const PINS: Record<string, { label: string; description: string }> = {
  transaction: { label: 'in transaction', description: 'A transaction is open: COMMIT or ROLLBACK gives the server connection back.' },
  failed_transaction: { label: 'failed transaction', description: 'A transaction has failed and was not ended: ROLLBACK gives the server connection back.' },
  session: { label: 'session', description: 'The pool is in session mode: the client keeps its server connection until it disconnects.' },
  copy: { label: 'COPY', description: 'A COPY waits for data of the client.' },
  no_sync: { label: 'no Sync', description: 'The client has asked something and not said that it is all (Sync).' },
  half_request: { label: 'half a request', description: 'A part of a message has come; the rest is awaited.' },
  slow_reader: { label: 'slow reader', description: 'The client does not read its replies.' },
  replication: { label: 'replication', description: 'The client replicates: its server connection is its own.' },
  temporary: { label: 'temporary objects', description: 'Its session has temporary tables or other objects in pg_temp: DROP or DISCARD TEMP gives the server connection back.' },
  cursor: { label: 'cursor', description: 'Its session has a cursor WITH HOLD: CLOSE gives the server connection back.' },
  prepared: { label: 'SQL PREPARE', description: 'Its session has statements prepared by SQL that cannot be prepared on another server connection: DEALLOCATE gives this one back.' },
  advisory_lock: { label: 'advisory lock', description: 'Its session has an advisory lock: pg_advisory_unlock gives the server connection back.' },
  listen: { label: 'LISTEN', description: 'Its session listens on a channel: UNLISTEN gives the server connection back.' },
  setting: { label: 'setting', description: 'Its session has settings that cannot be set on another server connection: RESET gives this one back, unless their names are not known.' },
  sequence: { label: 'sequence', description: 'Its session has values for currval and lastval, which clients of this pool ask for: DISCARD SEQUENCES gives the server connection back.' },
  library: { label: 'library', description: 'It has loaded a library (LOAD): it keeps its server connection until it disconnects.' },
  unnamed_statement: { label: 'unnamed statement', description: 'It has parsed the unnamed statement and not bound it yet.' },
  session_state: { label: 'session state', description: 'It is not known yet what its session holds.' },
  unclear: { label: 'unclear', description: 'The outcome of a request is not known: no other client gets this server connection.' },
};

/** `temporary objects 2, cursor 1`, the most frequent first. */
export const pinsOf = (byReason: Record<string, number>) =>
  Object.entries(byReason)
    .sort(([, one], [, other]) => other - one)
    .map(([reason, clients]) => `${pinOf(reason).label} ${clients}`)
    .join(', ');

export const pinOf = (reason: string) => PINS[reason] ?? { label: reason, description: '' };
