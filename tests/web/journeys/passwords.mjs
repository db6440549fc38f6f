// Wrong passwords are refused in plain words, the right one lets in and outlives a reload of the page; after too many, one has to wait.
export default async function ({ visitor, user, password }) {
  const me = await visitor();
  await me.button('Log in').click();
  await me.see('A name and a password are needed.');
  const attempt = async (secret) => {
    await me.field('Name').fill(user);
    await me.field('Password').fill(secret);
    await me.button('Log in').click();
  };
  await attempt('not this one');
  await me.see('Wrong name or password.');
  await attempt(password);
  await me.inside();
  await me.page.reload();
  await me.inside();
  await me.button('Log out').click();
  await me.button('Log in').waitFor();

  const refused = me.page.getByRole('alert');
  for (let attempts = 0; attempts < 6; attempts += 1) {
    await attempt('still not this one');
    await refused.waitFor();
    if (/Too many/.test(await refused.innerText())) return;
    // The next refusal is another one.
    await me.page.reload();
    await me.button('Log in').waitFor();
  }
  throw new Error('one may try as often as one likes');
}
