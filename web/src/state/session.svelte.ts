// The session: the user, its scopes, and the routes of this Weir. Loaded once at the start; a 401 of any request ends it.
import { asError, guard } from '../api/call';
import * as system from '../api/system';
import type { Scope, Session } from '../api/types';

class SessionState {
  /** Undefined: not known yet. Null: not logged in. */
  current = $state.raw<Session | null | undefined>(undefined);
  #routes = $state.raw<ReadonlySet<string>>(new Set());
  /** Why it is not known: Weir is unreachable. */
  unreachable = $state('');
  /** True when a session ended that was there, so that the login page can say so. */
  ended = $state(false);

  constructor() {
    guard.expired = () => {
      this.ended = this.current !== null && this.current !== undefined;
      this.current = null;
    };
  }

  async load(): Promise<void> {
    try {
      const session = await system.session();
      guard.csrf = session.csrf ?? '';
      if (this.#routes.size === 0) this.#routes = await system.routes();
      this.current = session;
      this.unreachable = '';
      this.ended = false;
    } catch (error) {
      const problem = asError(error);
      if (problem.status === 401) this.current = null;
      else this.unreachable = problem.message;
    }
  }

  async login(how: system.Login): Promise<void> {
    await system.login(how);
    await this.load();
  }

  async logout(): Promise<void> {
    try {
      await system.logout();
    } finally {
      guard.csrf = '';
      this.ended = false;
      this.current = null;
    }
  }

  /** Whether this Weir answers a route, as '/pools'. */
  answers(route: string): boolean {
    return this.#routes.has(route);
  }

  can(scope: Scope): boolean {
    return this.current?.scopes.includes(scope) ?? false;
  }
}

export const session = new SessionState();
