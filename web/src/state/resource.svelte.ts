// A value that is loaded, and reloaded when its dependencies change and at an interval. Keeps the last answer while
// the server is unreachable, with the error beside it.
import { type ApiError, asError } from '../api/call';

export interface Resource<T> {
  /** Undefined until the first answer. */
  readonly value: T | undefined;
  readonly error: ApiError | null;
  reload(): void;
}

/** Called while a component is created. `load` is run again when state changes that it reads before its first await. */
export function resource<T>(load: (signal: AbortSignal) => Promise<T>, everyMs = 0): Resource<T> {
  let value = $state.raw<T | undefined>(undefined);
  let error = $state.raw<ApiError | null>(null);
  let turn = $state(0);

  $effect(() => {
    void turn;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const round = async () => {
      try {
        value = await load(controller.signal);
        error = null;
      } catch (problem) {
        if (controller.signal.aborted) return;
        error = asError(problem);
      }
      if (everyMs > 0 && !controller.signal.aborted) timer = setTimeout(round, everyMs);
    };
    void round();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  });

  return {
    get value() {
      return value;
    },
    get error() {
      return error;
    },
    reload: () => (turn += 1),
  };
}
