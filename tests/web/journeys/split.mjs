// A pool whose reads go to standbys is made in the form: its servers and settings are named there, what is wrong with one stands beside it, and what
// the pool has is what the form shows when it is changed.
export default async function ({ visitor, token, host, port, ask }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools', 'Pools');
  await me.button('Create a pool').first().click();
  await me.field('Name').fill('split-pool');
  await me.field('Cluster').selectOption({ label: 'Other servers' });
  await me.field('Database').fill('app');
  await page.getByLabel('Inbound user').check();
  await me.field('Server connections').fill('4');
  await me.button('Preview the change').click();
  await me.see('Name its servers, or Patroni in topology.');

  await me.field('host').fill(host);
  await me.field('port').fill(port);
  await me.field('read_write_split').selectOption('1');
  await me.field('max_replica_lag').fill('soon');
  await me.button('Preview the change').click();
  const wrong = page.locator('input[aria-invalid=true]');
  await wrong.waitFor();
  if ((await wrong.inputValue()) !== 'soon') throw new Error('another field is to blame');
  await me.see('is neither a time in seconds nor a size like 16MB');
  await me.hasFocus(me.field('max_replica_lag'));
  await me.checkAccessibility('the form of a pool');
  await me.field('max_replica_lag').fill('10');
  await me.button('Preview the change').click();
  await me.see(/read_write_split=1 max_replica_lag=10/);
  await me.button('Create pool').click();
  await me.heading('Connection details of split-pool').waitFor();
  await me.button('Close').click();
  await ask('see reads on standbys');

  await me.open('pools/split-pool/hosts', 'split-pool');
  await page.getByRole('region', { name: 'Hosts' }).getByText('standby', { exact: true }).first().waitFor();
  await me.button('Edit').click();
  await page.getByText('Hosts, standbys and other settings').click();
  const shown = { host, port, read_write_split: '1', max_replica_lag: '10', weight: '' };
  for (const [name, value] of Object.entries(shown)) {
    const found = await me.field(name).inputValue();
    if (found !== value) throw new Error(`${name} is ${found}`);
  }
  await me.field('weight').fill('1,1,0');
  await me.field('max_replica_lag').fill('');
  await me.button('Preview the change').click();
  await me.see(/read_write_split=1 .*weight=1,1,0/);
  await me.button('Save').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await ask('see no reads on the last');
}
