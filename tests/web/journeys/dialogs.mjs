// All that opens, and every view of a pool, with clients and queries in it, as this browser shows it (light, dark, on a phone): axe finds nothing,
// and nothing sticks out.
import { makePool } from './steps.mjs';

const LOOKS = {
  light: { colorScheme: 'light' },
  dark: { colorScheme: 'dark' },
  phone: { colorScheme: 'dark', viewport: { width: 390, height: 844 } },
};

export default async function ({ visitor, token, ask, look }) {
  const me = await visitor(LOOKS[look]);
  const check = async (what) => {
    await me.checkAccessibility(`${what} (${look})`);
    await me.checkWidth(`${what} (${look})`);
  };
  const dismiss = async () => {
    await me.page.keyboard.press('Escape');
    await me.page.locator('dialog').waitFor({ state: 'detached' });
  };
  await me.logInByToken(token);
  await me.button('Create a pool').first().click();
  await makePool(me, { name: 'shown', db: 'app', size: '3' });
  await me.heading('Connection details of shown').waitFor();
  await ask('work');
  for (const form of ['Connection string', 'Parameters', '.env']) {
    await me.tab(form).click();
    await check(`${form} of the connection details`);
  }
  await dismiss();

  await me.button('Create a pool').first().click();
  await me.button('Preview the change').click();
  await me.page.locator('[aria-invalid=true]').first().waitFor();
  await check('a refused form');
  await me.field('Name').fill('another');
  await me.field('Database').fill('app');
  await me.field('User').fill('alice');
  await me.button('Preview the change').click();
  await me.button('Create pool').waitFor();
  await check('a preview');
  await dismiss();

  await me.open('pools/shown', 'shown');
  await me.heading('Transactions per second').waitFor();
  await check('the charts of a pool');
  for (const opens of ['Pause', 'Kill', 'Edit', 'Delete']) {
    if (opens === 'Edit') await me.button(opens).click();
    else await me.choose('Actions', opens);
    await me.page.getByRole('dialog').waitFor();
    await check(`the dialog behind ${opens}`);
    await dismiss();
  }
  await me.tab('Clients').click();
  await me.row('pinned').getByText('in transaction').waitFor();
  await check('the clients of a pool');
  await me.button(/^Actions on client/).first().click();
  await check('the actions on a client');
  await me.page.getByRole('menuitem', { name: 'Kill client' }).click();
  await check('the question before a client is killed');
  await dismiss();
  await me.tab('Servers').click();
  await me.page.getByRole('table').getByText('in transaction').waitFor();
  await check('the servers of a pool');
  await me.tab('Queries').click();
  await me.page.getByRole('table').waitFor();
  await check('the queries of a pool');
  await me.page.getByRole('table').getByRole('link').first().click();
  await me.heading('Plan').waitFor();
  await check('the page of a query');
}
