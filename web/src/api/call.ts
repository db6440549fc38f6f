// One request to the server: its result, or an ApiError with a message and the field that caused it.
// Never retries, never shows anything itself.

import { sentence } from '../lib/format';

/** An error of the server, with its message; status 0: the server is unreachable. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly field: string | null = null,
    readonly retryAfterSeconds: number | null = null,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** Set by the session: the value of X-Weir-CSRF, and what happens when the session has ended. */
export const guard = { csrf: '', expired: () => {} };

const UNREACHABLE = 'Weir cannot be reached. It may be restarting; this page tries again by itself.';

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return call<T>('GET', path, undefined, signal);
}

export async function call<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { accept: 'application/json' };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (method !== 'GET') headers['x-weir-csrf'] = guard.csrf;
  const request: RequestInit = { method, headers, credentials: 'same-origin', cache: 'no-store' };
  if (body !== undefined) request.body = JSON.stringify(body);
  if (signal) request.signal = signal;
  let response: Response;
  try {
    response = await fetch(`/api/v1${path}`, request);
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, UNREACHABLE);
  }
  if (!response.ok) throw await refusal(response, path);
  if (response.status === 204) return undefined as T;
  return (await response.json()) as T;
}

async function refusal(response: Response, path: string): Promise<ApiError> {
  if (response.status === 401 && path !== '/login') guard.expired();
  const retry = Number.parseInt(response.headers.get('retry-after') ?? '', 10);
  let answer: { message?: unknown; field?: unknown } = {};
  try {
    answer = await response.json();
  } catch {
    // Not the API's JSON (a proxy's page, perhaps): only the status is known.
  }
  const message = typeof answer.message === 'string' ? sentence(answer.message) : `The server answered ${response.status}.`;
  const field = typeof answer.field === 'string' ? answer.field : null;
  return new ApiError(response.status, message, field, Number.isNaN(retry) ? null : retry);
}

/** A query string of those parameters that have a value. */
export function query(parameters: Record<string, string | number | null | undefined>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== '' && value !== null && value !== undefined) search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
}

export function asError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError(0, error instanceof Error ? error.message : String(error));
}
