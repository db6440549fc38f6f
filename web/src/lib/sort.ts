// What a table is sorted by: a column's name, with a minus before it the other way round.

export interface SortColumn {
  id: string;
  label: string;
  /** The largest comes first, before it is turned round. */
  down?: boolean;
}

/** A press on a column's heading: by this column, and with the next press the other way round. */
export function pressed(sort: string, id: string): string {
  return sort === id ? `-${id}` : id;
}

/** How a column is sorted, in ARIA's words. */
export function direction(sort: string, { id, down = false }: SortColumn): 'ascending' | 'descending' | undefined {
  if (sort === id) return down ? 'descending' : 'ascending';
  return sort === `-${id}` ? (down ? 'ascending' : 'descending') : undefined;
}

/** The rows by a value of theirs; what has none comes last. */
export function sorted<T>(rows: T[], sort: string, columns: SortColumn[], value: (row: T, id: string) => string | number | null | undefined): T[] {
  const column = columns.find(({ id }) => sort === id || sort === `-${id}`);
  if (!column) return rows;
  const sign = direction(sort, column) === 'descending' ? -1 : 1;
  return [...rows].sort((one, other) => {
    const [a, b] = [value(one, column.id) ?? null, value(other, column.id) ?? null];
    if (a === null || b === null) return Number(a === null) - Number(b === null);
    return sign * (typeof a === 'number' && typeof b === 'number' ? a - b : String(a).localeCompare(String(b)));
  });
}
