// The subjects of a pool's fair queue are seen, who waits and what each has had; a pool without one has no such tab.
export default async function ({ visitor, token, ask }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools/other', 'other');
  await page.getByRole('tab', { name: 'Servers' }).waitFor();
  if ((await page.getByRole('tab', { name: 'Queue' }).count()) > 0) throw new Error('a tab without a fair queue');
  await me.open('pools/app', 'app');
  await page.getByRole('tab', { name: 'Queue' }).click();
  const queue = page.getByRole('region', { name: 'Queue' });
  const heavy = queue.getByRole('row', { name: /^heavy / });
  await heavy.getByText('100 %').waitFor();
  await ask('wait');
  await queue.getByRole('row', { name: /^light .* 2 / }).waitFor();
  await ask('serve');
  await queue.getByRole('row', { name: /^light .* 0 – 0 2 / }).waitFor();
}
