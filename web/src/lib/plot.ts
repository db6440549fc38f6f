// How uPlot draws a chart of the panel: colours and sizes from the tokens, read anew at each drawing, so that a change of theme is one
// redraw. Knows nothing of where the numbers come from.
import uPlot from 'uplot';

import { bytes, duration, minute } from './format';

export interface Line {
  name: string;
  label: string;
  /** Which of the five colours, from 1. */
  colour: number;
  /** The label's tooltip. */
  description?: string;
  /** A limit, the same at all times: dashed, and always on the chart. */
  limit?: number;
  /** Each number is a point too: it may have no neighbours. */
  dots?: boolean;
}

/** Only limits are dashed: what was measured is solid, and told apart by its value in the key. */
export const LIMIT_DASH = [5, 4];

const COLOURS = 5;

// A registered colour is computed, that is, one of the two that light-dark() offers; an unregistered one would be its text.
for (const name of ['--soft', '--rule', ...Array.from({ length: COLOURS }, (_, index) => `--line-${index + 1}`)]) {
  CSS.registerProperty({ name, syntax: '<color>', inherits: true, initialValue: 'transparent' });
}

/** The shortest range of the time axis: labels are a minute apart. */
const SECONDS_LEAST = 300;

const MINUTES = [60, 120, 300, 600, 1800, 3600, 7200, 10_800, 21_600];

/** A chart's options beside its lines; read anew at each drawing. */
export interface Frame {
  /** The seconds that are shown; 0: exactly those of the data; otherwise those of the data, and a few minutes at least. */
  seconds: () => number | undefined;
  marks: () => { t: number }[];
  /** A span of time was chosen by dragging. */
  zoom: ((from: number, to: number) => void) | undefined;
}

/** A shorter drag is a click. */
const DRAG_PIXELS = 8;

/** Steps between whole numbers: there is no half a client. */
const WHOLE = Array.from({ length: 18 }, (_, index) => [1, 2, 5][index % 3]! * 10 ** Math.floor(index / 3));

/** Steps between sizes, from a kibibyte on. */
const POWERS = Array.from({ length: 40 }, (_, index) => 2 ** (index + 10));

/** The least that an axis shows: a millisecond, a few kibibytes, one of anything else. So no two of its labels read the same. */
const LEAST = { duration: 1000, bytes: 4096, other: 1 };

function shown({ data: [times] }: uPlot, seconds: number | undefined): uPlot.Range.MinMax {
  const last = times.at(-1) ?? 0;
  if (seconds === undefined) return [Math.min(times[0] ?? 0, last - SECONDS_LEAST), last];
  return [seconds === 0 ? (times[0] ?? last - 1) : last - seconds, last];
}

function drawMarks(plot: uPlot, marks: { t: number }[]): void {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = token('--soft');
  ctx.lineWidth = devicePixelRatio;
  ctx.setLineDash([2 * devicePixelRatio, 3 * devicePixelRatio]);
  for (const { t } of marks) {
    const x = plot.valToPos(t, 'x', true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function chosen(plot: uPlot, zoom: Frame['zoom']): void {
  const { left, width } = plot.select;
  if (!zoom || width < DRAG_PIXELS) return;
  const [from, to] = [plot.posToVal(left, 'x'), plot.posToVal(left + width, 'x')];
  plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
  zoom(Math.floor(from), Math.ceil(to));
}

export const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function options(lines: Line[], format: (value: number | null) => string, width: number, height: number, hover: (index: number | null) => void, around: Frame): uPlot.Options {
  const least = format === duration ? LEAST.duration : format === bytes ? LEAST.bytes : LEAST.other;
  const axis: uPlot.Axis = {
    stroke: () => token('--soft'),
    grid: { stroke: () => token('--rule'), width: 1 },
    ticks: { show: false },
    font: '12px system-ui, sans-serif',
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
      drag: { x: around.zoom !== undefined, y: false, setScale: false },
      sync: { key: 'pool' },
    },
    scales: { x: { time: true, range: (plot) => shown(plot, around.seconds()) }, y: { range: (_plot, _low, high) => [0, Math.max(least, (high ?? 0) * 1.1)] } },
    axes: [
      { ...axis, size: 24, space: 60, incrs: MINUTES, values: (_plot, times) => times.map(minute) },
      { ...axis, size: 62, space: 32, incrs: format === bytes ? POWERS : WHOLE, values: (_plot, values) => values.map((value) => (value === 0 ? '0' : format(value))) },
    ],
    series: [
      {},
      ...lines.map(({ label, colour, limit, dots = false }) => ({
        label,
        stroke: () => token(`--line-${colour}`),
        width: limit === undefined ? 1.75 : 1,
        dash: limit === undefined ? [] : LIMIT_DASH,
        points: { show: dots, size: 4, fill: () => token(`--line-${colour}`) },
        spanGaps: false,
      })),
    ],
    hooks: {
      setCursor: [(plot) => hover(plot.cursor.idx ?? null)],
      draw: [(plot) => drawMarks(plot, around.marks())],
      setSelect: [(plot) => chosen(plot, around.zoom)],
    },
  };
}
