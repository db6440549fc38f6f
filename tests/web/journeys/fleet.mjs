// The nodes of a fleet and their limits are seen, on a phone too; when the store is gone, the page says what that means.
export default async function ({ visitor, token, ask }) {
  const both = [await visitor(), await visitor({ viewport: { width: 390, height: 844 } })];
  for (const me of both) {
    const { page } = me;
    await me.logInByToken(token);
    await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Fleet' }).click();
    await me.heading('Fleet').waitFor();
    const nodes = page.getByRole('region', { name: 'Nodes' });
    const row = (name) => nodes.locator('tbody tr').filter({ has: page.locator('th', { hasText: name }) });
    await row(/^a this node$/).locator('td').first().getByText('up', { exact: true }).waitFor();
    await row(/^b$/).locator('td').first().getByText('up', { exact: true }).waitFor();
    const limits = page.getByRole('region', { name: 'Shared limits' }).locator('tbody tr').filter({ hasText: 'max_db_connections' });
    const cells = await limits.locator('td.number').allInnerTexts();
    if (cells[0] !== '9' || cells[1] !== '1' || cells.length !== 6) throw new Error(`not the figures of app: ${cells}`);
    const clients = page.getByRole('region', { name: 'Limits of clients' }).locator('tbody tr').filter({ hasText: 'max_client_conn' });
    await clients.filter({ hasText: 'all clients' }).locator('td.number').filter({ hasText: /^90$/ }).waitFor();
    await me.checkAccessibility('fleet');
    await me.checkWidth('fleet');
  }
  // Usage of a quota on other nodes.
  const { page } = both[0];
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Quotas' }).click();
  await page.locator('tbody tr').filter({ hasText: 'alice' }).getByText(/^\d+ on other nodes$/).waitFor();
  await page.getByRole('navigation', { name: 'Pages' }).getByRole('link', { name: 'Fleet' }).click();
  await ask('stop the store');
  for (const me of both) {
    await me.page.getByRole('status').filter({ hasText: /^a: No lease, only fleet_min_servers of each shared limit are used.*as they were last known/ }).waitFor();
    await me.page.getByRole('region', { name: 'Nodes' }).getByText('alone', { exact: true }).waitFor();
    await me.checkAccessibility('a fleet without its store');
    await me.checkWidth('a fleet without its store');
  }
}
