// The lab from the browser: a sweep is begun, watched and stopped; another one runs to its end, its report is read, and what it advises is given
// to a pool.
export default async function ({ visitor, token, ask, traces }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);

  const check = async (what) => {
    for (const colorScheme of ['light', 'dark']) {
      // Without motion: halfway from one theme to the other no colour is right.
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
      await me.checkAccessibility(`${what} (${colorScheme})`);
    }
    await me.checkWidth(what);
  };
  const begin = async (server) => {
    await me.open('lab', 'Lab');
    await me.field('Server').selectOption(server);
    await me.field('Workload').selectOption('select-only');
    await me.field('Clients').fill('8');
    await me.field('Pool sizes').fill('1, 2, 4, 8');
    await me.field('Seconds a run').fill('1');
    await me.field('Rounds').fill('2');
    await me.see(/^Takes about \d/);
    await me.button('Start the run').click();
    await me.heading('Sweep of select-only').waitFor();
  };

  await begin('The server of lab-pool');
  await me.see(/^\d+ of \d+ runs/);
  await page.getByRole('region', { name: 'Runs so far' }).getByRole('rowheader', { name: /8 clients, pool of \d/ }).first().waitFor();
  await page.getByRole('figure').getByText('Transactions per second by pool size').waitFor();
  await check('a run under way');
  await me.button('Stop').click();
  await me.see('interrupted');
  await page.getByRole('link', { name: '← All runs' }).click();
  await me.row(/./).filter({ hasText: 'interrupted' }).waitFor();

  // On a private server it always names a size, with its doubts.
  await begin('A private PostgreSQL');
  const apply = me.button(/^Apply \d+ …$/);
  await apply.waitFor({ timeout: 480_000 });
  const size = (await apply.innerText()).replace(/\D/g, '');
  // A doubt that the report has stands beside the number, too.
  const advice = page.getByRole('region', { name: 'Advice' });
  const doubts = await advice.locator('.callout').allInnerTexts();
  const report = page.frameLocator('iframe[title=Report]');
  await report.locator('h1').waitFor();
  await check('a run that is over');
  await page.screenshot({ path: `${traces}/lab-report.png`, fullPage: true });

  const body = await report.locator('body').innerText();
  for (const doubt of ['this is the likeliest', 'With a doubt:']) {
    if (body.includes(doubt) && !doubts.join().includes(doubt)) throw new Error(`the card leaves out: ${doubt}`);
  }

  // Nothing changes before the change was seen and confirmed.
  await apply.click();
  await me.see(new RegExp(`lab-pool = .*pool_size=${size}`));
  await ask('has 13');
  await me.button('Save').click();
  await me.see('Pool lab-pool saved');
  await page.getByRole('option', { name: `lab-pool (now ${size})` }).waitFor({ state: 'attached' });
  await ask(`has ${size}`);
  await me.open('pools/lab-pool', 'lab-pool');
  await me.see(`${size} server connection`);
}
