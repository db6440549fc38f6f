// The end of the log: its last lines, then each new one. Lines that were written while the stream was down are loaded again.
import { asError } from '../api/call';
import { stream } from '../api/stream';
import * as api from '../api/system';

const KEPT = 1000;

export interface LogLine {
  id: number;
  text: string;
}

export class Tail {
  lines = $state.raw<LogLine[]>([]);
  unreachable = $state('');
  #last = 0;

  start(): () => void {
    return stream('/api/v1/log/live', {
      event: 'line',
      opened: () => void this.#catchUp(),
      message: (data) => this.#add([String(data)]),
      disconnected: () => (this.unreachable = 'The log cannot be followed at the moment; trying again.'),
    });
  }

  async #catchUp(): Promise<void> {
    try {
      const lines = await api.log(200);
      this.lines = [];
      this.#add(lines);
      this.unreachable = '';
    } catch (error) {
      this.unreachable = asError(error).message;
    }
  }

  #add(texts: string[]): void {
    const added = texts.map((text) => ({ id: (this.#last += 1), text }));
    this.lines = [...this.lines, ...added].slice(-KEPT);
  }
}

export type Level = 'bad' | 'warn' | '';

export function level(line: string): Level {
  if (/ (ERROR|FATAL) /.test(line)) return 'bad';
  return / WARNING /.test(line) ? 'warn' : '';
}
