// Two people at once: what one does the other sees, in the log and in the pools; and whoever logs out takes nobody along.
import { makePool } from './steps.mjs';

export default async function ({ visitor, token, ask }) {
  const [one, other] = [await visitor(), await visitor()];
  for (const me of [one, other]) {
    await me.logInByToken(token);
    await me.open('log', 'Log');
    await me.see(/LOG/);
  }
  await ask('connect');
  for (const me of [one, other]) await me.see(/login attempt: db=app user=bob/);

  await other.open('pools', 'Connection pools');
  await one.open('pools', 'Connection pools');
  await one.button('Create a pool').first().click();
  await makePool(one, { name: 'shared', db: 'app', size: '2' });
  await one.heading('Connection details of shared').waitFor();
  await other.row('shared').waitFor();
  for (const me of [one, other]) await me.open('pools/shared', 'shared');

  // Both have the form open; the later one sees what the earlier one has saved.
  await other.button('Edit').click();
  await one.button('Edit').click();
  await one.field('Server connections').fill('5');
  await one.button('Preview the change').click();
  await one.button('Save').click();
  await one.see('5 server connections');
  await other.field('Server connections').fill('4');
  await other.button('Preview the change').click();
  await other.see(/pool_size=5/);
  await other.button('Save').click();
  await one.see('4 server connections');

  await one.choose('Actions', 'Delete');
  await one.field('Type shared to confirm').fill('shared');
  await one.button('Delete the pool').click();
  await other.see('Pool shared not found');

  await one.button('Log out').click();
  await one.button('Log in').waitFor();
  await other.open('settings', 'Settings');
  await other.row('listen_port').waitFor();
}
