// A listing by pages: the page that is shown, kept fresh, and the cursors of those before it.
import type { Page } from '../api/activity';
import { resource, type Resource } from './resource.svelte';

export interface Listing<T> {
  readonly from: Resource<Page<T>>;
  readonly page: number;
  back(): void;
  forth(): void;
  /** To the first page: the filter has changed. */
  restart(): void;
}

/** Called while a component is created. */
export function listing<T>(load: (cursor: string | null, signal: AbortSignal) => Promise<Page<T>>, everyMs: number): Listing<T> {
  let cursors = $state.raw<(string | null)[]>([null]);
  const from = resource((signal) => load(cursors.at(-1) ?? null, signal), everyMs);
  return {
    from,
    get page() {
      return cursors.length - 1;
    },
    back: () => (cursors = cursors.length > 1 ? cursors.slice(0, -1) : cursors),
    forth: () => {
      const next = from.value?.next;
      if (next) cursors = [...cursors, next];
    },
    restart: () => (cursors = [null]),
  };
}
