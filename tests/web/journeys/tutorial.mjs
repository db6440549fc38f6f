// The tutorial by mouse: create test-pool, copy its URI, run pgbench on exactly that, see it on the chart; then change, pause, delete it.
import { makePool, traffic } from './steps.mjs';

export default async function ({ visitor, token, program }) {
  const me = await visitor();
  await me.logInByToken(token);
  await me.button('Create a pool').first().click();
  await makePool(me, { name: 'test-pool', db: 'app', size: '4' });

  // The dialog of the new pool is open: its URI is what one came for.
  await me.heading('Connection details of test-pool').waitFor();
  await me.tab('Connection string').click();
  await me.button('Copy').click();
  const uri = await me.clipboard();
  if (!/^postgres(ql)?:\/\/.*\/test-pool/.test(uri)) throw new Error(`not a URI of test-pool: ${uri}`);
  await me.button('Close').click();

  await me.row('test-pool').waitFor();
  await me.page.getByRole('link', { name: 'test-pool', exact: true }).click();
  await me.heading('Transactions per second').waitFor();
  const load = program('pgbench', '-n', '-f', 'select.sql', '-T', '6', '-c', '4', uri);
  await traffic(me);
  await load;

  await me.button('Edit').click();
  await me.field('Server connections').fill('7');
  await me.button('Preview the change').click();
  await me.see(/pool_size=7/);
  await me.button('Save').click();
  await me.see('7 server connections');

  await me.choose('Actions', 'Pause');
  await me.button('Pause').last().click();
  await me.page.getByText('paused', { exact: true }).first().waitFor();
  await me.choose('Actions', 'Resume');
  await me.page.getByText('paused', { exact: true }).first().waitFor({ state: 'detached' });

  await me.choose('Actions', 'Delete');
  const confirm = me.button('Delete the pool');
  if (await confirm.isEnabled()) throw new Error('a pool can be deleted without its name being typed');
  await me.field('Type test-pool to confirm').fill('test-pool');
  await confirm.click();
  await me.heading('Connection pools').waitFor();
  await me.row('test-pool').waitFor({ state: 'detached' });
}
