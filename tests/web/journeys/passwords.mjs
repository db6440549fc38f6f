// Wrong passwords are refused in plain words, the right one lets in and outlives a reload of the page; after too many, the next has to wait.
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
  for (let attempts = 0; attempts < 5; attempts += 1) {
    await attempt('still not this one');
    await refused.waitFor();
    // The next refusal is another one.
    await me.page.reload();
    await me.button('Log in').waitFor();
  }
  // Further ones are a second apart, and the right one comes through, when its turn has come.
  const begun = Date.now();
  const statuses = await me.page.evaluate(
    (user) => {
      const body = JSON.stringify({ user, password: 'nor these' });
      const headers = { 'Content-Type': 'application/json' };
      const one = () => fetch('/api/v1/login', { method: 'POST', headers, body }).then((answer) => answer.status);
      return Promise.all([one(), one(), one()]);
    },
    user,
  );
  if (Date.now() - begun < 1900) throw new Error('one may try as often as one likes');
  if (statuses.some((status) => status !== 401)) throw new Error(`refused with ${statuses}`);
  await attempt(password);
  await me.inside();
  await me.button('Log out').click();
  await me.button('Log in').waitFor();

  await me.page.route('**/api/v1/login', (route) =>
    route.fulfill({
      status: 429,
      headers: { 'Retry-After': '7' },
      contentType: 'application/json',
      body: JSON.stringify({ id: 'too_many_requests', message: 'Too many attempts: try again in 7 s.', request_id: '' }),
    }),
  );
  await attempt(password);
  await me.see('Too many attempts. Try again in 7 seconds.');
}
