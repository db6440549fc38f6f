// A listing of connections by pages, with filters: of one pool, or of all.
import { NO_FILTER, type Filter, type Page } from '../api/activity';
import { listing, type Listing } from './listing.svelte';

export interface Filtered<T> extends Listing<T> {
  /** A filter is set, beside the pool's own. */
  readonly narrowed: boolean;
  /** What it is sorted by. */
  readonly sort: string;
  choose(filter: Filter): void;
  sortBy(sort: string): void;
  clear(): void;
}

const EVERY_MS = 2000;

/** Called while a component is created. */
export function filtered<T>(database: () => string, load: (filter: Filter, sort: string, cursor: string | null, signal: AbortSignal) => Promise<Page<T>>, usual = ''): Filtered<T> {
  let filter = $state.raw<Filter>(NO_FILTER);
  let sort = $state(usual);
  const slices = listing((cursor, signal) => load({ ...filter, database: database() || filter.database }, sort, cursor, signal), EVERY_MS);
  const choose = (wanted: Filter) => {
    filter = wanted;
    slices.restart();
  };
  return {
    from: slices.from,
    get page() {
      return slices.page;
    },
    get narrowed() {
      return Object.entries(filter).some(([name, value]) => value !== '' && !(name === 'database' && database() !== ''));
    },
    get sort() {
      return sort;
    },
    sortBy: (wanted) => {
      sort = wanted;
      slices.restart();
    },
    back: slices.back,
    forth: slices.forth,
    restart: slices.restart,
    choose,
    clear: () => choose(NO_FILTER),
  };
}
