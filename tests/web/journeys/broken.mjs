// What stands in the way of a change is said with its reason, and nothing is half applied: a file that somebody broke, a directory that nobody may
// write, a pool that is gone, more than the server has.
export default async function ({ visitor, token, ask }) {
  const me = await visitor();
  await me.logInByToken(token);
  const open = async (name, db = 'app') => {
    await me.button('Create a pool').first().click();
    await me.field('Name').fill(name);
    await me.field('Database').fill(db);
    await me.field('User').fill('alice');
    await me.button('Preview the change').click();
  };
  const beside = (label, text) => me.page.locator('.field').filter({ has: me.page.getByLabel(label, { exact: true }) }).getByText(text).waitFor();
  const cancel = async () => {
    await me.page.keyboard.press('Escape');
    await me.page.locator('dialog').waitFor({ state: 'detached' });
  };

  await open('first', 'no-such-database');
  await beside('Database', /There is no database "no-such-database" on this cluster: it has app/);
  await me.hasFocus(me.field('Database'));
  await me.field('Database').fill('app');
  await me.field('Server connections').fill('5000');
  await me.see(/The pools together may open \d+ connections; the server has \d+ for them/);
  await me.button('Preview the change').click();
  await beside('Server connections', /5000 connections are more than the \d+ that are free/);
  await me.field('Server connections').fill('2');
  await me.button('Preview the change').click();
  await me.button('Create pool').waitFor();

  // Broken between the preview and the creation.
  await ask('break the file');
  await me.button('Create pool').click();
  await me.page.getByRole('alert').filter({ hasText: /configuration is broken: .*pools\.ini:\d+: syntax error/ }).waitFor();
  if ((await me.field('Name').inputValue()) !== 'first') throw new Error('what was typed is lost');
  await ask('mend the file');
  await me.button('Preview the change').click();
  await me.button('Create pool').click();
  await me.heading('Connection details of first').waitFor();
  await cancel();
  await me.row('first').waitFor();

  await open('app');
  await beside('Name', /A database "app" exists already, defined in .*weir\.ini:\d+/);
  await cancel();

  await ask('close the directory');
  await open('second');
  await me.button('Create pool').click();
  await me.page.getByRole('alert').filter({ hasText: /Cannot write the pools file .*: (Permission denied|Read-only)/ }).waitFor();
  await cancel();
  await ask('open the directory');
  if ((await me.row('second').count()) > 0) throw new Error('a pool is shown that could not be written');

  // Somebody else deletes what is being changed here.
  await me.open('pools/first', 'first');
  await me.button('Edit').click();
  await ask('delete first');
  await me.field('Server connections').fill('3');
  await me.button('Preview the change').click();
  await me.page.getByRole('alert').filter({ hasText: /not be found|no pool/i }).first().waitFor();
  await ask('nothing is left');
}
