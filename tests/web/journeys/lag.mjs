// The lag of a pool's standbys is charted over time, in bytes and in time, and what each host was: a standby that does not replay is seen to fall
// behind while others do not, and to come back.
export default async function ({ visitor, token, ask, primary, standby1, standby2 }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools/app/hosts', 'app');
  const of = (name) => page.getByRole('region', { name: `Lag of ${name}`, exact: true });
  for (const name of [primary, standby1, standby2]) await of(name).waitFor();
  await of(primary).getByText('primary', { exact: true }).waitFor();
  await of(standby1).locator('canvas').nth(1).waitFor();

  // The charts as tables: what is drawn, the newest first.
  for (const kind of ['time', 'WAL']) await me.button(`Table of Lag of ${standby1} in ${kind}`).click();
  await me.button(`Table of Lag of ${standby2} in WAL`).click();
  const cells = (name, kind) => page.getByRole('region', { name: `Lag of ${name} in ${kind}, as a table` }).getByRole('cell');
  const newest = async (name, kind) => amount(await cells(name, kind).first().innerText());
  await until(async () => (await newest(standby1, 'WAL')) === 0, 'a standby that has everything');

  await ask('stop replay');
  await until(async () => (await newest(standby1, 'WAL')) > 100_000, 'WAL that is not replayed');
  await of(standby1).getByText('lagging', { exact: true }).waitFor();
  // Time goes on: each second is more than the one before.
  const first = await newest(standby1, 'time');
  await until(async () => (await newest(standby1, 'time')) > first + 2_000_000, 'lag that grows');
  const seen = (await Promise.all((await cells(standby1, 'time').all()).slice(0, 3).map((cell) => cell.innerText()))).map(amount);
  if (!(seen[0] > seen[1] && seen[1] > seen[2])) throw new Error(`no line that rises: ${seen}`);
  await until(async () => (await newest(standby2, 'WAL')) === 0, 'the other standby, which replays');
  const changes = page.getByRole('region', { name: 'State changes' });
  await changes.getByRole('listitem').filter({ hasText: standby1 }).filter({ hasText: 'standby → lagging' }).first().waitFor();
  await me.checkAccessibility('the hosts');

  await ask('resume replay');
  await changes.getByRole('listitem').filter({ hasText: standby1 }).filter({ hasText: 'lagging → standby' }).first().waitFor();
  await of(standby1).getByText('standby', { exact: true }).waitFor();
  await until(async () => (await newest(standby1, 'WAL')) === 0, 'a standby that has caught up');

  // The cluster: who follows whom.
  await me.open('clusters', 'Clusters');
  const servers = page.getByRole('list', { name: 'Topology' }).getByRole('listitem');
  await servers.first().filter({ hasText: primary }).getByText('primary', { exact: true }).waitFor();
  await servers.filter({ hasText: standby2 }).getByText(/behind$/).waitFor();
  await me.checkAccessibility('the clusters');
  await servers.filter({ hasText: standby1 }).getByRole('link').click();
  await of(standby1).waitFor();

  // Longer ago: loaded, with the highest lag of each step.
  await page.getByLabel('Range').selectOption({ label: '2 hours' });
  await me.see('Steps of 10 s');
  await me.button(`Table of Lag of ${standby1} in WAL`).click();
  await until(async () => (await cells(standby1, 'WAL').allInnerTexts()).map(amount).some((lag) => lag > 100_000), 'the past');
  await page.setViewportSize({ width: 390, height: 800 });
  await me.checkWidth('the hosts');

  async function until(holds, what) {
    const end = Date.now() + 60_000;
    while (!(await holds())) {
      if (Date.now() > end) throw new Error(`never seen: ${what}`);
      await page.waitForTimeout(200);
    }
  }
}

const UNITS = { B: 1, KiB: 1024, MiB: 1024 ** 2, GiB: 1024 ** 3, 'µs': 1, ms: 1000, s: 1_000_000 };

/** Bytes or microseconds; NaN where nothing is known. */
function amount(text) {
  const [number, unit] = text.split(' ');
  return Number(number?.replace(',', '')) * (UNITS[unit] ?? Number.NaN);
}
