// A pool without a mouse: opened, refused, filled in, previewed, created, its URI copied; and after each step the focus is where one goes on.
export default async function ({ visitor, token }) {
  const me = await visitor();
  const { page } = me;
  await me.hasFocus(me.field('Name'));
  await me.tabTo(me.tab('Password'));
  await page.keyboard.press('ArrowRight');
  await me.tabAndType(me.field('Token'), token);
  await page.keyboard.press('Enter');
  await me.inside();

  // Escape leaves, and one is where one was.
  const start = me.button('Create a pool').first();
  await me.tabAndPress(start);
  const dialog = page.getByRole('dialog', { name: 'Create a pool' });
  await me.hasFocus(me.field('Name'));
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  await me.hasFocus(start);

  // What is wrong is where one goes on typing.
  await page.keyboard.press('Enter');
  await me.hasFocus(me.field('Name'));
  await page.keyboard.press('Enter');
  await me.see('A pool needs a name: clients give it as the name of the database.');
  await me.hasFocus(me.field('Name'));
  await page.keyboard.type('by-keys');
  await page.keyboard.press('Tab');
  await me.hasFocus(me.field('Cluster'));
  await page.keyboard.press('Tab');
  await me.hasFocus(me.field('Database'));
  await page.keyboard.type('app');
  await page.keyboard.press('Tab');
  await me.hasFocus(page.getByRole('radio', { name: 'Always the same user' }));
  await page.keyboard.press('Tab');
  await me.hasFocus(me.field('User'));
  await page.keyboard.type('alice');
  await me.tabAndType(me.field('Server connections'), '3');
  await page.keyboard.press('Enter');

  // The preview: Enter goes on, and there is a way back to the form, which has kept everything.
  const create = me.button('Create pool');
  await me.hasFocus(create);
  await me.tabAndPress(me.button('Back'));
  await me.hasFocus(me.field('Name'));
  if ((await me.field('User').inputValue()) !== 'alice') throw new Error('the way back has lost what was typed');
  await page.keyboard.press('Enter');
  await me.hasFocus(create);
  await page.keyboard.press('Enter');

  await me.heading('Connection details of by-keys').waitFor();
  await me.tabAndPress(me.button('Copy'));
  await me.see('Connection string copied');
  const uri = await me.clipboard();
  if (!/^postgres:\/\/alice@.*\/by-keys/.test(uri)) throw new Error(`not a URI of by-keys: ${uri}`);
  await page.keyboard.press('Escape');
  await me.row('by-keys').waitFor();
  await me.hasFocus(start);

  // Operating it: words of buttons change under the focus, questions give it back.
  await me.tabAndPress(page.getByRole('link', { name: 'by-keys', exact: true }));
  const action = (name) => page.getByRole('menuitem', { name, exact: true });
  await me.tabAndPress(me.button('Actions'));
  await me.hasFocus(action('Pause'));
  await page.keyboard.press('ArrowDown');
  await me.hasFocus(action('Reconnect'));
  await page.keyboard.press('Escape');
  await me.hasFocus(me.button('Actions'));
  await page.keyboard.press('Enter');
  await me.hasFocus(action('Pause'));
  await page.keyboard.press('Enter');
  await me.hasFocus(me.button('Cancel'));
  await me.tabAndPress(me.button('Pause'));
  await me.hasFocus(me.button('Actions'));
  await page.getByText('paused', { exact: true }).first().waitFor();
  await page.keyboard.press('Enter');
  await me.hasFocus(action('Resume'));
  await page.keyboard.press('Enter');
  await me.hasFocus(me.button('Actions'));
  await me.tabAndPress(me.button('Edit'));
  await me.hasFocus(me.field('Database'));
  await page.keyboard.press('Escape');
  await me.hasFocus(me.button('Edit'));
  await me.tabAndPress(me.button('Actions'));
  await me.hasFocus(action('Pause'));
  await page.keyboard.press('End');
  await me.hasFocus(action('Delete'));
  await page.keyboard.press('Enter');
  await me.hasFocus(me.field('Type by-keys to confirm'));
  await page.keyboard.type('by-keys');
  await page.keyboard.press('Enter');
  await me.heading('Connection pools').waitFor();
  await me.row('by-keys').waitFor({ state: 'detached' });
  await me.hasFocus(page.locator('#content'));
}
