// A user and a token from their making to their end: the token is shown once, a name is not given twice, and who is removed cannot log in.
export default async function ({ visitor, user, password, ask }) {
  const me = await visitor();
  const { page } = me;
  await me.logIn(user, password);
  await me.open('users', 'Users');
  await me.row(user).waitFor();

  const create = async (kind, name, secret) => {
    await me.button(`New ${kind}`).click();
    await me.field('Name').fill(name);
    if (secret) await me.field('Password').fill(secret);
    await me.button('Create').click();
  };
  await create('user', 'bob', 'long enough');
  await me.row('bob').getByText('read', { exact: true }).waitFor();
  await create('user', 'bob', 'long enough');
  await me.see('a user bob exists already');
  await me.field('Name').fill('eve');
  await me.field('Password').fill('short');
  await me.button('Create').click();
  await page.getByText(/8 characters/).nth(1).waitFor();
  await me.button('Cancel').click();

  await me.row('bob').getByRole('button', { name: 'Edit bob' }).click();
  await page.getByRole('checkbox', { name: /operate/ }).check();
  await me.button('Save').click();
  await me.row('bob').getByText('read, operate').waitFor();

  await create('token', 'ci');
  const text = await page.getByRole('dialog').locator('code').innerText();
  await me.button('Done').click();
  await me.row('ci').waitFor();
  if ((await page.content()).includes(text)) throw new Error('the token is shown again');

  const other = await visitor();
  await other.logInByToken(text);
  await ask('the trail names the token');
  await me.row('ci').getByRole('button', { name: 'Remove ci' }).click();
  await me.button('Remove').last().click();
  await me.row('ci').waitFor({ state: 'detached' });
  await other.button('Log in').waitFor();
  await me.row('bob').getByRole('button', { name: 'Remove bob' }).click();
  await me.button('Remove').last().click();
  await me.row('bob').waitFor({ state: 'detached' });
  await me.checkAccessibility('users');
}
