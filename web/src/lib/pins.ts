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
  unclear: { label: 'unclear', description: 'The outcome of a request is not known: no other client gets this server connection.' },
};

export const pinOf = (reason: string) => PINS[reason] ?? { label: reason, description: '' };
