// A password that is also the user, the database and a part of other words is masked where it stands as the password, and nowhere else.
export default async function ({ visitor, token }) {
  const me = await visitor();
  await me.logInByToken(token);
  await me.open('pools/app/connection', 'app');
  const text = (form) => me.page.getByLabel(form, { exact: true }).and(me.page.locator('pre'));
  const reads = async (form, expected) => {
    await me.tab(form).click();
    const shown = await text(form).innerText();
    if (!expected.test(shown)) throw new Error(`${form}: ${shown}`);
  };
  const MASK = '•{8}';
  await reads('Connection string', new RegExp(`^postgres://app:${MASK}@127.0.0.1:\\d+/app\\?sslmode=\\w+$`));
  await reads('Flags', new RegExp(`^PGPASSWORD=${MASK} .* -U app -d app$`));
  await reads('psql', new RegExp(`^psql 'postgres://app:${MASK}@.*/app.*'$`));
  await reads('JDBC', new RegExp(`/app\\?.*&user=app&password=${MASK}$`));
  await reads('.env', new RegExp(`PGDATABASE=app\nPGUSER=app\nPGPASSWORD=${MASK}\n`));
  await me.button('Show password').click();
  await reads('Connection string', /^postgres:\/\/app:app@/);
  await me.button('Copy').click();
  if (!(await me.clipboard()).startsWith('postgres://app:app@')) throw new Error('the copy is masked');
}
