// What several journeys do.

/** Fills in the open dialog of a new pool, looks at the preview, creates it. */
export async function makePool(me, { name, db, size }) {
  await me.field('Name').fill(name);
  await me.field('Database').fill(db);
  await me.field('Always the same user').check();
  await me.field('User').fill('alice');
  await me.field('Server connections').fill(size);
  await me.button('Preview the change').click();
  await me.see(new RegExp(`${name} = .*pool_size=${size}`));
  await me.button('Create pool').click();
}

/** Waits until the chart of the open pool, read as a table, has a second with transactions. */
export async function traffic(me) {
  await me.button('Table of Transactions per second').click();
  const cells = me.page.getByRole('region', { name: 'Transactions per second, as a table' }).getByRole('cell');
  await cells.filter({ hasText: /[1-9]/ }).first().waitFor();
}
