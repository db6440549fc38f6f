// Whoever points at a chart reads the time and the values there, and goes on reading them while new numbers come in.
export default async function ({ visitor, token }) {
  const me = await visitor();
  const { page } = me;
  await me.logInByToken(token);
  await me.open('pools/app', 'app');
  const card = page.locator('section').filter({ has: me.heading('Transactions per second') });
  const canvas = card.locator('canvas');
  await canvas.waitFor();
  await canvas.evaluate((element) => element.setAttribute('data-first', ''));

  // Near the right edge, where there are values from the first seconds on.
  const box = await card.locator('.u-over').boundingBox();
  await page.mouse.move(box.x + box.width - 4, box.y + box.height / 2);
  const at = card.getByText(/^\d\d:\d\d:\d\d$/);
  // The window moves on beneath the pointer, a second with each sample.
  const seen = new Set();
  while (seen.size < 4) {
    await page.waitForFunction(([element, times]) => !times.includes(element.textContent), [await at.elementHandle(), [...seen]]);
    seen.add(await at.textContent());
    if (await card.locator('.u-cursor-x').evaluate((line) => line.classList.contains('u-off'))) throw new Error('the crosshair is gone');
  }
  if ((await card.locator('canvas[data-first]').count()) !== 1) throw new Error('the chart was made anew while it was looked at');

  // A table and back: the chart goes on from there.
  await me.button('Table of Transactions per second').click();
  await page.getByRole('region', { name: 'Transactions per second, as a table' }).getByRole('rowheader').nth(3).waitFor();
  await me.button('Chart of Transactions per second').click();
  await canvas.waitFor();
  await page.mouse.move(box.x + box.width - 4, box.y + box.height / 2);
  const then = await at.textContent();
  await page.waitForFunction(([element, time]) => element.textContent !== time, [await at.elementHandle(), then]);
  await page.mouse.move(0, 0);
  await at.waitFor({ state: 'detached' });
}
