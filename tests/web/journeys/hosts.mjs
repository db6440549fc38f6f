// The hosts of a pool whose reads go to standbys are seen, and what is to be done about them; other pools have no such tab.
export default async function ({ visitor, token, ask, standby }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools/other', 'other');
  await page.getByRole('tab', { name: 'Servers' }).waitFor();
  if ((await page.getByRole('tab', { name: 'Hosts' }).count()) > 0) throw new Error('a tab without hosts');
  await me.open('pools/app', 'app');
  await page.getByRole('tab', { name: 'Hosts' }).click();
  const rows = page.getByRole('region', { name: 'Hosts' }).getByRole('row');
  await rows.filter({ hasText: standby }).getByText('standby', { exact: true }).waitFor();
  await rows.getByText('primary', { exact: true }).waitFor();
  await ask('detach');
  await rows.filter({ hasText: standby }).getByText('detached', { exact: true }).waitFor();
  await me.see('ATTACH');
  await ask('attach');
  await rows.filter({ hasText: standby }).getByText('standby', { exact: true }).waitFor();
}
