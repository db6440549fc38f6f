// The lab: start a run, interrupt it, apply what it advises. Reports are pages of their own, for a sandboxed frame.
import { call, get } from './call';
import type { LabRun, LabRuns, StartRun } from './types';

const at = (id: string) => `/lab/runs/${encodeURIComponent(id)}`;

export function runs(signal?: AbortSignal): Promise<LabRuns> {
  return get<LabRuns>('/lab/runs', signal);
}

export async function run(id: string, signal?: AbortSignal): Promise<LabRun> {
  const answer = await get<LabRun | { run: LabRun }>(at(id), signal);
  return 'run' in answer ? answer.run : answer;
}

export async function start(request: StartRun): Promise<string> {
  const answer = await call<{ id: string } | { run: LabRun }>('POST', '/lab/runs', request);
  return 'run' in answer ? answer.run.id : answer.id;
}

export function interrupt(id: string): Promise<void> {
  return call('DELETE', at(id));
}

export function apply(id: string, pool: string): Promise<unknown> {
  return call('POST', `${at(id)}/apply`, { pool });
}

/** Addresses for a frame and an event stream. */
export const reportAddress = (id: string) => `/api/v1${at(id)}/report`;
export const eventsAddress = (id: string) => `/api/v1${at(id)}/events`;
