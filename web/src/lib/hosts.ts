// The states of hosts: their colours, and how a change of one reads.
import type { HostChange } from '../api/types';

export type HostState = NonNullable<HostChange['state']>;

/** The tone of a badge or of a part of a band; others are plain. */
export const TONES: Record<string, string> = { primary: 'accent', standby: 'good', lagging: 'warn', detached: 'warn', down: 'bad' };

const stateOf = (change: HostChange | undefined) => change?.state ?? 'not sampled';

/** What is other than before: the state, the timeline, or both. */
export function changeText(before: HostChange | undefined, now: HostChange): string {
  const timeline = now.timeline !== null && before?.timeline != null && before.timeline !== now.timeline ? `timeline ${before.timeline} → ${now.timeline}` : '';
  const state = stateOf(before) === stateOf(now) ? '' : `${stateOf(before)} → ${stateOf(now)}`;
  return [state, timeline].filter((part) => part !== '').join(', ') || `timeline ${now.timeline ?? 'not known'}`;
}

export interface Part {
  state: HostState | null;
  timeline: number | null;
  from: number;
  to: number;
}

/** The states of a span of time, one behind the other. */
export function parts(changes: HostChange[], from: number, to: number): Part[] {
  return changes
    .map((change, index) => ({ ...change, from: Math.max(change.t, from), to: Math.min(changes[index + 1]?.t ?? to, to) }))
    .filter((part) => part.to > part.from || (part.from === to && part.to === to));
}
