// The report of quotas: worst first, found among 10,000 by words and by pages; a limit is changed and removed, a default set, by keyboard.
export default async function ({ visitor, token, look, ask }) {
  const me = await visitor(look === 'phone' ? { viewport: { width: 390, height: 844 } } : {});
  const { page } = me;
  await me.logInByToken(token);
  await me.open('quotas', 'Quotas');
  const table = page.getByRole('region', { name: 'Quotas', exact: true });
  const rows = table.getByRole('rowheader');
  await rows.first().waitFor();
  if (!(await rows.first().innerText()).startsWith('alice')) throw new Error('the worst state is not first');
  await table.getByText('above soft').waitFor();
  await me.see(/^No quota counts for a database user/);
  await me.see('10,002 in all');
  if ((await rows.count()) !== 50) throw new Error(`${await rows.count()} rows in a page`);
  await me.checkAccessibility('quotas');
  await me.checkWidth('quotas');

  await me.button('Next').click();
  await me.see('Page 2 · 50 rows');
  await rows.getByText('alice').waitFor({ state: 'detached' });
  await me.field('Name').fill('TENANT0432');
  await me.see('10 in all');
  if ((await rows.count()) !== 10) throw new Error('the filter is not that of the table');
  await me.field('State').selectOption('over');
  await me.see('No matches');
  await me.button('Show all').click();
  await me.see('10,002 in all');

  await rows.getByRole('link', { name: 'alice' }).click();
  await me.heading('queries/hour of user alice').waitFor();
  const chart = page.locator('section').filter({ has: me.heading('Usage') });
  await chart.locator('canvas').waitFor();
  await chart.getByText('Soft limit').first().waitFor();
  await me.checkAccessibility('the usage of a subject');
  await me.checkWidth('the usage of a subject');
  await page.goBack();
  await rows.first().waitFor();

  const dialog = page.getByRole('dialog');
  const field = (name) => dialog.locator('input, select').and(dialog.getByLabel(name, { exact: true }));
  await me.tabAndPress(me.button('Change queries/hour of user alice'));
  await me.hasFocus(dialog.locator('*'));
  if ((await field('Grace time').inputValue()) !== '7d') throw new Error('the grace time is not shown as it is');
  await field('Soft limit').fill('5000');
  await field('Hard limit').fill('2000');
  await page.keyboard.press('Enter');
  await dialog.getByText('Soft limit 5000 is above the hard limit 2000.').waitFor();
  await field('Soft limit').fill('10');
  await field('Grace time').fill('12h');
  await me.checkAccessibility('the dialog of a limit');
  await me.checkWidth('the dialog of a limit');
  await page.keyboard.press('Enter');
  await dialog.waitFor({ state: 'detached' });
  await ask('the limit is changed');
  await me.button('Change queries/hour of user alice').click();
  await me.button('Remove limit').click();
  await dialog.waitFor({ state: 'detached' });
  await ask('the limit is removed');
  await me.see('10,001 in all');

  await me.button('Set a limit').click();
  await field('Subject').selectOption('application_name');
  await dialog.getByRole('checkbox').check();
  await field('Resource').selectOption('bytes/hour');
  await field('Hard limit').fill('50G');
  await me.button('Save').click();
  await dialog.waitFor({ state: 'detached' });
  await ask('the default is set');
  const defaults = page.getByRole('region', { name: 'Defaults' });
  await defaults.getByText('50 GiB').waitFor();
  await me.button('Change bytes/hour of each application_name').click();
  if ((await field('Hard limit').inputValue()) !== '50G') throw new Error('a figure is not shown as the file has it');
  await me.button('Cancel').click();
  await me.button('Change bytes/day of each database').click();
  await me.button('Remove limit').click();
  await defaults.getByText('5 GiB').waitFor({ state: 'detached' });
}
