// Who is logged in, what they may do, and what their Weir can do. Asks the server once at the start; a 401 anywhere ends the session here.
import { asError, guard } from '../api/call';
import * as system from '../api/system';
import type { Scope, Session } from '../api/types';

class SessionState {
  /** Undefined: not known yet. Null: nobody is logged in. */
  current = $state.raw<Session | null | undefined>(undefined);
  #routes = $state.raw<ReadonlySet<string>>(new Set());
  /** Why it is not known: Weir cannot be reached. */
  trouble = $state('');
  /** True when a session ended that was there, so that the login page can say so. */
  ended = $state(false);

  constructor() {
    guard.expired = () => {
      this.ended = this.current !== null && this.current !== undefined;
      this.current = null;
    };
  }

  async ask(): Promise<void> {
    try {
      const session = await system.session();
      guard.csrf = session.csrf;
      if (this.#routes.size === 0) this.#routes = await system.routes();
      this.current = session;
      this.trouble = '';
      this.ended = false;
    } catch (error) {
      const problem = asError(error);
      if (problem.status === 401) this.current = null;
      else this.trouble = problem.message;
    }
  }

  async login(how: system.Login): Promise<void> {
    await system.login(how);
    await this.ask();
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
