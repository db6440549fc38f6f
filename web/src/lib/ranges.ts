// The spans of time that charts offer, and which of them grow live.
export const RANGES: { seconds: number; label: string }[] = [
  { seconds: 300, label: '5 minutes' },
  { seconds: 600, label: '10 minutes' },
  { seconds: 1800, label: '30 minutes' },
  { seconds: 3600, label: '1 hour' },
  { seconds: 7200, label: '2 hours' },
  { seconds: 21_600, label: '6 hours' },
  { seconds: 86_400, label: '24 hours' },
];

/** Up to this there is a number for each second. */
export const LIVE_SECONDS = 600;
