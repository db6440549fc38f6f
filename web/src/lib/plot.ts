// How uPlot draws a chart of the panel: colours and sizes from the tokens, read anew at each drawing, so that a change of theme is one
// redraw. Knows nothing of where the numbers come from.
import uPlot from 'uplot';

import { count } from './format';

export interface Line {
  name: string;
  label: string;
  /** Which of the five colours, from 1; each has a dash of its own, so that colour is never the only difference. */
  colour: number;
}

export const DASHES: number[][] = [[], [7, 2], [3, 2], [8, 2, 3, 2], [14, 3]];

// A registered colour is computed, that is, one of the two that light-dark() offers; an unregistered one would be its text.
for (const name of ['--soft', '--rule', ...DASHES.map((_, index) => `--line-${index + 1}`)]) {
  CSS.registerProperty({ name, syntax: '<color>', inherits: true, initialValue: 'transparent' });
}

/** So much of time at least, however little has happened; of one moment alone uPlot would show a day. */
const SECONDS_LEAST = 30;

/** Steps between whole numbers: there is no half a client. */
const WHOLE = Array.from({ length: 18 }, (_, index) => [1, 2, 5][index % 3]! * 10 ** Math.floor(index / 3));

function shown({ data: [times] }: uPlot): uPlot.Range.MinMax {
  const last = times.at(-1) ?? 0;
  return [Math.min(times[0] ?? 0, last - SECONDS_LEAST), last];
}

export const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function options(lines: Line[], format: (value: number | null) => string, width: number, height: number, hover: (index: number | null) => void): uPlot.Options {
  const axis: uPlot.Axis = {
    stroke: () => token('--soft'),
    grid: { stroke: () => token('--rule'), width: 1 },
    ticks: { show: false },
    font: '11px system-ui, sans-serif',
    gap: 6,
  };
  return {
    width,
    height,
    legend: { show: false },
    padding: [8, 26, 0, 0],
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: false, y: false },
      sync: { key: 'pool' },
    },
    scales: { x: { time: true, range: shown }, y: { range: (_plot, _low, high) => [0, Math.max(1, (high ?? 0) * 1.1)] } },
    axes: [
      { ...axis, size: 24, space: 70, values: (_plot, times) => times.map(clockOf) },
      { ...axis, size: 58, space: 32, values: (_plot, values) => values.map(format), ...(format === count ? { incrs: WHOLE } : {}) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour }) => ({
        label,
        stroke: () => token(`--line-${colour}`),
        width: 1.75,
        dash: DASHES[colour - 1] ?? [],
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: { setCursor: [(plot) => hover(plot.cursor.idx ?? null)] },
  };
}

const clockOf = (time: number) => new Date(time * 1000).toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
