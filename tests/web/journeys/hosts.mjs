// The hosts of a pool whose reads go to standbys are seen, and what is to be done about them; pools of one server have no such tab. A host is detached and attached
// again, which a caller who may only look cannot.
export default async function ({ visitor, token, looker, ask, standby }) {
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

  const dialog = page.getByRole('dialog');
  await me.choose(`Actions on ${standby}`, 'Detach');
  await dialog.getByText('no client is disconnected').waitFor();
  await dialog.getByRole('button', { name: 'Cancel' }).click();
  await ask('see that all are attached');
  await me.choose(`Actions on ${standby}`, 'Detach');
  await dialog.getByRole('button', { name: 'Detach' }).click();
  await dialog.waitFor({ state: 'detached' });
  await rows.filter({ hasText: standby }).getByText('detached', { exact: true }).waitFor();
  await ask('see that one is detached');
  await me.choose(`Actions on ${standby}`, 'Attach');
  await rows.filter({ hasText: standby }).getByText('standby', { exact: true }).waitFor();
  await ask('see that all are attached');

  // Of a pool that only writes, hosts are known, and none is to be detached.
  await me.open('pools/writes/hosts', 'writes');
  await rows.filter({ hasText: standby }).getByText('standby', { exact: true }).waitFor();
  await rows.getByText('primary', { exact: true }).waitFor();
  for (const name of ['Reads', 'Connections']) {
    if ((await page.getByRole('columnheader', { name }).count()) > 0) throw new Error(`a column ${name} of what is not counted`);
  }
  if ((await page.getByRole('button', { name: /^Actions on/ }).count()) > 0) throw new Error('actions on hosts that get no reads');

  const other = await visitor();
  await other.logInByToken(looker);
  await other.open('pools/app/hosts', 'app');
  await other.page.getByRole('region', { name: 'Hosts' }).getByText(standby).waitFor();
  if ((await other.page.getByRole('button', { name: /^Actions on/ }).count()) > 0) throw new Error('actions for a caller who may only look');
}
