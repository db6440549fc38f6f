// Settings are sorted by each column, either way, and found by a word.
export default async function ({ visitor, token }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('settings', 'Settings');
  await me.row('pool_mode').first().waitFor();
  const names = () => page.getByRole('rowheader').allInnerTexts();
  const isSorted = (found) => found.every((name, place) => place === 0 || found[place - 1].localeCompare(name) <= 0);
  await me.button('Setting').click();
  if (!isSorted(await names())) throw new Error('not by name');
  await me.button(/^Setting/).click();
  if (!isSorted((await names()).toReversed())) throw new Error('not by name, the other way round');
  await page.locator('th[aria-sort=descending]').waitFor();
  await me.button('Value').click();
  await page.locator('th[aria-sort=ascending]').getByText('Value').waitFor();
  const numbers = (await page.locator('td[data-label=Value]').allInnerTexts()).map(Number.parseFloat).filter((number) => !Number.isNaN(number));
  if (numbers.slice(0, 20).some((number, place) => place > 0 && numbers[place - 1] > number)) throw new Error(`not by number: ${numbers}`);
  await me.field('Find a setting').fill('query_wait_timeout');
  await me.row('pool_mode').first().waitFor({ state: 'detached' });
  await me.checkAccessibility('settings');
}
