// Where the reader is: the part of the address behind '#'. A path of segments, each decoded; links are plain <a href>.

class RouteState {
  path = $state.raw<string[]>(read());

  constructor() {
    addEventListener('hashchange', () => (this.path = read()));
  }
}

function read(): string[] {
  const segments = location.hash.replace(/^#\/?/, '').split('/').filter((segment) => segment !== '');
  return segments.map((segment) => {
    try {
      return decodeURIComponent(segment);
    } catch {
      return segment;
    }
  });
}

/** The address of a page: link('pools', name). */
export function link(...segments: string[]): string {
  return `#/${segments.map(encodeURIComponent).join('/')}`;
}

export function go(...segments: string[]): void {
  location.hash = link(...segments);
}

export const route = new RouteState();
