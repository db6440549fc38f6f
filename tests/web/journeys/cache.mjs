// The query cache of a pool's entry is seen, with what became of requests; other pools have no such tab.
export default async function ({ visitor, token }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools/other', 'other');
  await page.getByRole('tab', { name: 'Servers' }).waitFor();
  if ((await page.getByRole('tab', { name: 'Cache' }).count()) > 0) throw new Error('a tab without a cache');
  await me.open('pools/app', 'app');
  await page.getByRole('tab', { name: 'Cache' }).click();
  const cache = page.getByRole('region', { name: 'Query cache' });
  await cache.getByText('ok', { exact: true }).waitFor();
  await cache.getByText('16 MiB').waitFor();
  await cache.getByText(/^[1-9]\d* %$/).waitFor();
}
