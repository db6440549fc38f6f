// What the form of a new pool proposes, what is said of a server that is down, and the URI of a pool without a user of its own.
export default async function ({ visitor, token, down }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.row('away').getByText('server down').waitFor();
  await me.button('Create a pool').first().click();
  const cluster = me.field('Cluster');
  const chosen = await cluster.locator('option:checked').innerText();
  if (chosen.includes(String(down)) || chosen.includes('down')) throw new Error(`${chosen} is proposed`);
  await cluster.getByText(`:${down} (down)`).waitFor({ state: 'attached' });
  const list = await me.field('Database').getAttribute('list');
  const offered = await page.locator(`[id="${list}"] option`).evaluateAll((options) => options.map((option) => option.value));
  if (!offered.includes('other')) throw new Error(`offered: ${offered}`);
  if (!(await me.field('Always the same user').isChecked())) throw new Error('the inbound user is proposed');
  await me.button('Cancel').click();

  await me.open('clusters', 'Clusters');
  await page.getByText('down', { exact: true }).waitFor();
  await me.see(/refused/i);
  await page.getByRole('main').locator('time').first().waitFor();
  await me.open('pools/away', 'away');
  await me.see(/refused/i);
  await page.getByRole('main').locator('time').first().waitFor();

  await me.open('pools/app/connection', 'app');
  await me.see(/postgres:\/\/USER(:PASSWORD)?@/);
}
