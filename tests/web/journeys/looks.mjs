// How charts and times look: the pool's size is on the chart of its connections, each label has its meaning, a wide screen is used, and a time
// is of the reader's zone, in UTC for whoever points at it.
export default async function ({ visitor, token, ask }) {
  const me = await visitor({ viewport: { width: 1920, height: 1000 }, timezoneId: 'Asia/Tokyo' });
  const { page } = me;
  await me.logInByToken(token);
  await ask('connect');
  await me.open('pools/app', 'app');
  const servers = page.locator('section').filter({ has: me.heading('Server connections') });
  await servers.getByRole('listitem').filter({ hasText: /^\s*Size\s+7$/ }).waitFor();
  const meaning = await servers.getByRole('listitem').filter({ hasText: 'Idle for long' }).getAttribute('title');
  if (!meaning.includes('server_check_delay')) throw new Error(`no meaning: ${meaning}`);
  // Transactions have a scale of their own.
  await me.heading('Transactions per second').waitFor();
  await me.heading('Queries per second').waitFor();
  const { width } = await page.locator('main').boundingBox();
  if (width < 1600) throw new Error(`of 1920 pixels ${width} are used`);

  const over = await servers.locator('.u-over').boundingBox();
  await page.mouse.move(over.x + over.width - 4, over.y + 20);
  const shown = await servers.getByText(/^\d\d:\d\d:\d\d$/).innerText();
  const tokyo = new Date(Date.now() + 9 * 3600_000).toISOString().slice(11, 13);
  if (![tokyo, String((Number(tokyo) + 23) % 24).padStart(2, '0')].includes(shown.slice(0, 2))) throw new Error(`${shown} is not Tokyo's time`);

  await me.tab('Clients').click();
  const title = await page.locator('td time').first().getAttribute('title');
  if (!/^(\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$/.test(title)) throw new Error(`not a time: ${title}`);
}
