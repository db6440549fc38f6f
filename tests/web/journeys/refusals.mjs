// What the server refuses stands beside its field, nothing is saved, and what was typed is still there.
import { makePool } from './steps.mjs';

export default async function ({ visitor, token }) {
  const me = await visitor();
  await me.logInByToken(token);
  const start = me.button('Create a pool').first();
  await start.click();
  await me.button('Preview the change').click();
  await me.see('A pool needs a name: clients give it as the name of the database.');

  await me.field('Name').fill('spare-pool');
  await me.field('Database').fill('app');
  await me.field('User').fill('alice');
  for (const [size, says] of [
    ['0', 'A pool has at least one server connection.'],
    ['many', 'The size is a whole number.'],
  ]) {
    await me.field('Server connections').fill(size);
    await me.button('Preview the change').click();
    await me.see(says);
  }
  await me.field('Server connections').fill('2');
  await me.field('Name').fill('no/such name');
  await me.button('Preview the change').click();
  await me.page.locator('input[aria-invalid=true]').waitFor();

  await makePool(me, { name: 'spare-pool', db: 'app', size: '2' });
  await me.heading('Connection details of spare-pool').waitFor();
  await me.button('Close').click();
  await start.click();
  await me.field('Name').fill('spare-pool');
  await me.field('Database').fill('app');
  await me.field('User').fill('alice');
  await me.button('Preview the change').click();
  await me.page.locator('dialog .problem, dialog .callout.bad').first().waitFor();
  await me.button('Cancel').click();
  if ((await me.row('spare-pool').count()) !== 1) throw new Error('the pool is there twice');
}
