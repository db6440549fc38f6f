// What clients call themselves is text and nothing else.
export default async function ({ visitor, token, ask }) {
  const name = '<img src=x onerror=alert(1)>';
  await ask(`connect as ${name}`);
  const me = await visitor();
  await me.logInByToken(token);
  await me.open('clients', 'Clients');
  await me.see(name);
  if ((await me.page.locator('img').count()) > 0) throw new Error('the name of an application became an element');
  await me.field('Application').fill('<img');
  await me.see(name);
  await me.choose(/^Actions on client/, 'Kill client');
  await me.button('Kill').last().click();
  await me.page.getByRole('rowheader', { name }).waitFor({ state: 'detached' });
}
