// Why a client keeps its server connection outside of a request: the server's words, and what they mean to whoever looks for connections.

export const PINS: Record<string, { label: string; says: string }> = {
  transaction: { label: 'in transaction', says: 'A transaction is open: COMMIT or ROLLBACK gives the server connection back.' },
  failed_transaction: { label: 'failed transaction', says: 'A transaction has failed and was not ended: ROLLBACK gives the server connection back.' },
  session: { label: 'session', says: 'The pool is in session mode: the client keeps its server connection until it leaves.' },
  copy: { label: 'COPY', says: 'A COPY waits for data of the client.' },
  no_sync: { label: 'no Sync', says: 'The client has asked something and not said that it is all (Sync).' },
  half_request: { label: 'half a request', says: 'A part of a message has come; the rest is awaited.' },
  slow_reader: { label: 'slow reader', says: 'The client does not read what it is answered.' },
  replication: { label: 'replication', says: 'The client replicates: its server connection is its own.' },
  unclear: { label: 'unclear', says: 'Something was sent whose outcome is not known: nobody else gets this server connection.' },
};

export const pinOf = (reason: string) => PINS[reason] ?? { label: reason, says: '' };
