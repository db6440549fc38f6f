// Quotas: usage and limits, listed by pages; limits set and removed.
import type { Page, Span } from './activity';
import { call, get, query } from './call';
import type { OwnQuotas, Quota, QuotaDefaults, UsageHistory } from './types';

export interface QuotaFilter {
  subject: string;
  search: string;
  /** As the file has it, `queries/day`; with a period or without. */
  measure: string;
  state: string;
}

export const NO_QUOTA_FILTER: QuotaFilter = { subject: '', search: '', measure: '', state: '' };

export interface QuotaPage extends Page<Quota> {
  total: number;
  /** Null: `quotas_file` is not set. */
  file: string | null;
}

/** Figures as the file has them: `100000`, `500G`, `7d`. */
export interface QuotaLimits {
  soft: string;
  hard: string;
  grace: string;
}

/** Whose limit for what; without a name it is the default of its kind. */
export interface QuotaKey {
  subject: string;
  name: string | null;
  measure: string;
}

const ROWS = 50;

export async function quotas({ measure, ...filter }: QuotaFilter, sort: string, cursor: string | null, signal?: AbortSignal): Promise<QuotaPage> {
  const [resource, period] = measure === '' ? ['', ''] : [measure.split('/')[0] ?? '', measure.split('/')[1] ?? 'none'];
  type Answer = { quotas: Quota[]; total: number; file: string | null; next_cursor?: number | null };
  const page = await get<Answer>(`/quotas${query({ ...filter, resource, period, sort, cursor, limit: ROWS })}`, signal);
  return { rows: page.quotas, total: page.total, file: page.file, next: page.next_cursor?.toString() ?? null };
}

export function ownQuotas(signal?: AbortSignal): Promise<OwnQuotas> {
  return get('/quotas/own', signal);
}

export function quotaDefaults(signal?: AbortSignal): Promise<QuotaDefaults> {
  return get('/quotas/defaults', signal);
}

const ofUsage = ({ subject, name, measure }: QuotaKey, span: Span) => ({ subject, measure, ...span, name: name ?? '' });

/** How a subject's usage grew. */
export function usageHistory(key: QuotaKey, span: Span, signal?: AbortSignal): Promise<UsageHistory> {
  return get(`/quotas/history${query(ofUsage(key, span))}`, signal);
}

export const usageCsvAddress = (key: QuotaKey, span: Span) => `/api/v1/quotas/history${query({ ...ofUsage(key, span), format: 'csv' })}`;

/** One subject and resource; null where no quota counts for it. */
export async function quota({ subject, name, measure }: QuotaKey, signal?: AbortSignal): Promise<Quota | null> {
  const [resource = '', period = 'none'] = measure.split('/');
  return (await get<{ quotas: Quota[] }>(`/quotas${query({ subject, name, resource, period, limit: 1 })}`, signal)).quotas[0] ?? null;
}

function address({ subject, name, measure }: QuotaKey): string {
  const words = name === null ? ['defaults', subject, measure] : [subject, name, measure];
  return `/quotas/${words.map(encodeURIComponent).join('/')}`;
}

/** What is left empty is left out. */
export function setQuota(key: QuotaKey, limits: QuotaLimits): Promise<void> {
  const given = Object.entries(limits).filter(([, figure]) => figure.trim() !== '');
  return call('PUT', address(key), Object.fromEntries(given.map(([field, figure]) => [field, figure.trim()])));
}

export function removeQuota(key: QuotaKey): Promise<void> {
  return call('DELETE', address(key));
}
