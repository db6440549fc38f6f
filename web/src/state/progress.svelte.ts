// The progress of a lab run, from the objects that `weir-bench --progress json` writes, one per event. The stream repeats all from the beginning
// each time it is opened.
import { stream } from '../api/stream';
import { eventsAddress } from '../api/lab';

interface Point {
  target: string;
  workload: string;
  pool_size: number | null;
  clients: number;
  offered: { tps: number } | null;
}

interface News {
  event: string;
  text?: string;
  done?: number;
  runs?: number;
  left_s?: number | null;
  point?: Point;
  second?: { tps: number; warm_up: boolean };
  run?: { round: number; tps: number; failed: number; latency_us?: { percentiles: { p95: number } | null } | null; ended: unknown };
  warnings?: { kind: string; text: string }[];
}

export interface Outcome {
  id: number;
  /** What was measured, closed loops only: target, pool size, number of clients. */
  place: { target: string; size: number | null; clients: number } | null;
  round: number;
  name: string;
  tps: number;
  p95_us: number | null;
  ended: string;
}

export class Progress {
  step = $state('');
  remarks = $state.raw<string[]>([]);
  filling = $state<number | null>(null);
  runs = $state(0);
  done = $state(0);
  left_s = $state<number | null>(null);
  running = $state('');
  seconds = $state.raw<number[]>([]);
  outcomes = $state.raw<Outcome[]>([]);
  warnings = $state.raw<string[]>([]);
  disconnected = $state(false);

  constructor(
    readonly id: string,
    readonly ended: () => void,
  ) {}

  start(): () => void {
    return stream(eventsAddress(this.id), {
      event: 'progress',
      opened: () => this.#reset(),
      message: (data) => this.#take(data as News),
      disconnected: () => (this.disconnected = true),
    });
  }

  #reset(): void {
    this.disconnected = false;
    this.outcomes = [];
    this.remarks = [];
    this.seconds = [];
    this.done = 0;
  }

  #take(news: News): void {
    switch (news.event) {
      case 'step':
        this.step = news.text ?? '';
        this.filling = null;
        break;
      case 'remark':
        this.remarks = [...this.remarks, news.text ?? ''].slice(-5);
        break;
      case 'filling':
        this.filling = news.done ?? null;
        break;
      case 'begin':
        this.runs = news.runs ?? 0;
        this.filling = null;
        break;
      case 'run':
        this.running = news.point ? nameOf(news.point) : '';
        this.left_s = news.left_s ?? null;
        this.seconds = [];
        break;
      case 'second':
        if (news.second) this.seconds = [...this.seconds, news.second.tps].slice(-120);
        break;
      case 'ran':
        this.#ran(news);
        break;
      case 'end':
        this.warnings = (news.warnings ?? []).map(({ text }) => text);
        this.running = '';
        this.ended();
        break;
    }
  }

  #ran({ done, point, run }: News): void {
    this.done = done ?? this.done;
    if (!point || !run) return;
    this.outcomes = [
      ...this.outcomes,
      {
        id: this.outcomes.length,
        place: point.offered === null ? { target: point.target, size: point.pool_size, clients: point.clients } : null,
        round: run.round + 1,
        name: nameOf(point),
        tps: run.tps,
        p95_us: run.latency_us?.percentiles?.p95 ?? null,
        ended: typeof run.ended === 'string' ? run.ended : Object.keys(run.ended ?? {}).join(),
      },
    ];
  }
}

function nameOf(point: Point): string {
  const size = point.pool_size === null ? '' : `, pool of ${point.pool_size}`;
  const offered = point.offered === null ? '' : `, ${Math.round(point.offered.tps)} TPS offered`;
  return `${point.target}, ${point.clients} clients${size}${offered}`;
}
