// A query is found, its page read, its plan asked for; what was counted is discarded; and one query is cancelled while its client stays. Clients
// are sorted.
export default async function ({ visitor, token, ask, version }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await ask('work');
  await me.open('queries', 'Queries');
  const rows = page.getByRole('row').filter({ has: page.getByRole('rowheader') });
  await me.row('needle').waitFor();
  await me.field('Find a query').fill('NEEDLE');
  await me.row('hay').waitFor({ state: 'detached' });
  await me.row('needle').getByRole('link').first().click();
  await me.heading('Plan').waitFor();
  const fact = (name) => page.locator('dl > div').filter({ hasText: name }).locator('dd');
  if ((await fact('Calls').innerText()) !== '3') throw new Error('not 3 calls');
  await page.getByText(/%$/).first().waitFor();
  await me.button('Explain').click();
  if (version >= 16) await page.getByRole('region', { name: 'Plan' }).getByText('Result').waitFor();
  else await me.see('older than PostgreSQL 16');

  await me.open('queries', 'Queries');
  await me.row('needle').waitFor();
  await me.button('Reset').click();
  await me.button('Reset').last().click();
  await me.row('needle').waitFor({ state: 'detached' });

  await me.open('clients', 'Clients');
  await ask('sleep');
  await me.row('sleeper').getByText('active', { exact: true }).waitFor();
  await me.row('sleeper').getByRole('button').click();
  await page.getByRole('menuitem', { name: 'Cancel query' }).click();
  await me.see('is being cancelled');
  await ask('was cancelled and is still connected');
  await me.button('Application').click();
  await page.getByRole('columnheader', { name: 'Application' }).and(page.locator('[aria-sort=ascending]')).waitFor();
  await rows.first().filter({ hasText: 'first of all' }).waitFor();
  await me.button('Application').click();
  await rows.last().filter({ hasText: 'first of all' }).waitFor();
}
