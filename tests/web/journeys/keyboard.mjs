// Without a mouse: log in, walk through the menu, find a setting, choose a theme, log out. Every step is a key.
export default async function ({ visitor, token }) {
  const me = await visitor();
  const { page } = me;
  await me.tabTo(me.tab('Password'));
  await page.keyboard.press('ArrowRight');
  await me.tabAndType(me.field('Token'), token);
  await page.keyboard.press('Enter');
  await me.inside();

  await me.tabAndPress(page.getByRole('link', { name: 'Settings', exact: true }));
  await me.heading('Settings').waitFor();
  await me.tabAndType(me.field('Find a setting'), 'query_wait_timeout');
  await me.row('query_wait_timeout').waitFor();
  await me.row('listen_addr').waitFor({ state: 'detached' });

  await me.tabAndPress(me.button(/^Theme: system/));
  await me.tabAndPress(me.button(/^Theme: light/));
  await me.button(/^Theme: dark/).waitFor();
  const dark = await page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
  if (dark !== 'dark') throw new Error(`the theme is ${dark}`);

  await me.tabAndPress(me.button('Log out'));
  await me.button('Log in').waitFor();
}
