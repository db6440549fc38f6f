// One stream of server-sent events that reconnects: quickly at first, then every ten seconds. Never interprets an event.

export interface StreamListener {
  event: string;
  message: (data: unknown) => void;
  opened?: () => void;
  disconnected?: () => void;
}

const WAITS_MS = [500, 1000, 2000, 5000, 10000];

/** Opens the stream; the returned function closes it for good. */
export function stream(address: string, listener: StreamListener): () => void {
  let source: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let failures = 0;

  const open = () => {
    source = new EventSource(address);
    source.onopen = () => {
      failures = 0;
      listener.opened?.();
    };
    source.addEventListener(listener.event, (message) => {
      const data = parsed((message as MessageEvent<string>).data);
      if (data !== undefined) listener.message(data);
    });
    source.onerror = () => {
      // The browser's own retry gives up after some answers (401, 503), so this one never relies on it.
      source?.close();
      listener.disconnected?.();
      timer = setTimeout(open, WAITS_MS[Math.min(failures, WAITS_MS.length - 1)]);
      failures += 1;
    };
  };

  open();
  return () => {
    clearTimeout(timer);
    source?.close();
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
