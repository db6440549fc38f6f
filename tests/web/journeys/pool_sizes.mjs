// A pool that sizes itself: made by the form with its bounds, its size, the reason of the last change and a chart with a line there; then fixed at its largest size.
export default async function ({ visitor, token, ask }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.button('Create a pool').first().click();
  await me.field('Name').fill('sized-pool');
  await me.field('Database').fill('app');
  await me.field('User').fill('alice');
  await page.getByRole('radio', { name: /^auto/ }).check();
  await me.field('Server connections').waitFor({ state: 'detached' });
  await me.field('Least').fill('9');
  await me.field('Largest').fill('3');
  await me.button('Preview the change').click();
  await me.see(/no size is allowed/);
  await me.hasFocus(me.field('Least'));
  await me.field('Least').fill('2');
  await me.field('Largest').fill('12');
  await me.checkAccessibility('the form of a pool that sizes itself');
  await me.button('Preview the change').click();
  await page.getByText('pool_size=auto').first().waitFor();
  await me.button('Create pool').click();
  await me.heading('Connection details of sized-pool').waitFor();
  await me.button('Close').click();
  await me.row('sized-pool').getByText('auto, 2–12', { exact: true }).waitFor();
  await ask('it is auto');

  await me.open('pools/sized-pool/size', 'sized-pool');
  await me.see('sizes itself, 2 to 12 server connections');
  await me.see('No size yet');
  await ask('clients come');
  const table = page.getByRole('region', { name: 'Sizes' });
  await table.getByText('transactions/s instead of').waitFor();
  await page.getByRole('region', { name: 'Changes' }).getByText(/^pool_size of sized-pool\/alice: /).first().waitFor();
  const chart = page.locator('section').filter({ has: me.heading('Size of sized-pool/alice') });
  await chart.locator('canvas').waitFor();
  await chart.getByText('Largest').first().waitFor();
  await me.checkAccessibility('the size of a pool');
  await page.setViewportSize({ width: 390, height: 844 });
  await me.checkWidth('the size of a pool on a phone');
  await page.setViewportSize({ width: 1280, height: 860 });
  await me.tab('Live').click();
  await page.getByRole('region', { name: 'Changes' }).getByText(/^pool_size of sized-pool\/alice: /).first().waitFor();

  await me.button('Edit').click();
  if ((await me.field('Largest').inputValue()) !== '12') throw new Error('the form has lost the largest size');
  await page.getByRole('radio', { name: 'A number of server connections' }).check();
  if ((await me.field('Server connections').inputValue()) !== '12') throw new Error('not the largest size');
  await me.button('Preview the change').click();
  await me.button('Save').click();
  await me.see('Pool sized-pool saved');
  await ask('it is fixed');
  await me.tab('Size').waitFor({ state: 'detached' });
}
