// Numbers for people: the same unit, the same width, a dash where there is nothing.

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat('en', { minimumFractionDigits: 1, maximumFractionDigits: 1 });

export const NONE = '–';

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : whole.format(value);
}

/** Something per second. */
export function rate(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (value >= 100_000) return `${whole.format(value / 1000)}k`;
  return value > 0 && value < 10 ? tenth.format(value) : whole.format(value);
}

/** Microseconds, in the unit that gives three digits. */
export function duration(us: number | null | undefined): string {
  if (us === null || us === undefined) return NONE;
  if (us < 1000) return `${whole.format(us)} µs`;
  if (us < 1_000_000) return `${digits(us / 1000)} ms`;
  const seconds = us / 1_000_000;
  return seconds < 120 ? `${digits(seconds)} s` : span(seconds);
}

function digits(value: number): string {
  return value < 10 ? value.toFixed(2) : value < 100 ? value.toFixed(1) : whole.format(value);
}

export function seconds(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : duration(value * 1_000_000);
}

/** How long ago or how long: 3 min, 2 h 5 min, 4 d. */
export function span(total: number): string {
  const value = Math.max(0, Math.round(total));
  if (value < 60) return `${value} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${value % 60} s`;
  if (value < 86_400) return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
  return `${Math.floor(value / 86_400)} d ${Math.floor((value % 86_400) / 3600)} h`;
}

/** Roughly how long something will take. */
export function minutes(seconds: number): string {
  if (seconds < 50) return `${Math.max(10, Math.round(seconds / 10) * 10)} seconds`;
  const whole = Math.round(seconds / 60);
  if (whole < 60) return `${whole} minute${whole === 1 ? '' : 's'}`;
  return `${Math.floor(whole / 60)} h ${whole % 60} min`;
}

export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return NONE;
  if (value < 1024 * 1024) return `${whole.format(value / 1024)} KiB`;
  if (value < 1024 * 1024 * 1024) return `${whole.format(value / 1024 / 1024)} MiB`;
  return `${tenth.format(value / 1024 / 1024 / 1024)} GiB`;
}

export function percent(value: number | null | undefined): string {
  return value === null || value === undefined ? NONE : `${whole.format(value)} %`;
}

const two = (value: number) => String(value).padStart(2, '0');
const timeOf = (date: Date) => `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
const dayOf = (date: Date) => `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;

/** A moment in the reader's own time zone: 24 hours, with the date where it is not today's. */
export function moment(time: string | null | undefined): string {
  if (!time) return NONE;
  const date = new Date(time);
  if (Number.isNaN(date.getTime())) return time;
  return dayOf(date) === dayOf(new Date()) ? timeOf(date) : `${dayOf(date)} ${timeOf(date)}`;
}

/** The same moment in UTC, for logs. */
export function utc(time: string | null | undefined): string | undefined {
  const date = new Date(time ?? '');
  return Number.isNaN(date.getTime()) ? undefined : `${date.toISOString().slice(0, 19).replace('T', ' ')} UTC`;
}

export function clock(epochSeconds: number): string {
  return timeOf(new Date(epochSeconds * 1000));
}

/** Without seconds, as axes have it. */
export function minute(epochSeconds: number): string {
  return clock(epochSeconds).slice(0, 5);
}

export function age(time: string | null | undefined): string {
  if (!time) return NONE;
  const began = new Date(time).getTime();
  return Number.isNaN(began) ? time : span((Date.now() - began) / 1000);
}

/** What the server says as a sentence: begun and ended as one. The name of a setting stays as it is written. */
export function sentence(text: string): string {
  const begun = /^[a-z]+_/.test(text) ? text : text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
