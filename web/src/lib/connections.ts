// What lists of connections say of one.

/** The number of the connection at the other end, from `0x1f`; null if there is none. */
export function linkOf(link: string): number | null {
  const id = Number.parseInt(link, 16);
  return Number.isNaN(id) ? null : id;
}

export const addressOf = ({ address, port }: { address: string; port: number }) =>
  port === 0 ? address : address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
