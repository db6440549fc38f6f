// Who keeps a server connection is found by its reason, and seen to let go of it.
export default async function ({ visitor, token, ask }) {
  const me = await visitor();
  await me.logInByToken(token);
  await ask('begin');
  await me.open('clients', 'Clients');
  await me.row('free').waitFor();
  await me.row('held').getByText('in transaction').waitFor();
  await me.field('Pinned').selectOption('Pinned for any reason');
  await me.row('free').waitFor({ state: 'detached' });
  await me.row('held').waitFor();
  const [client] = /client \d+/.exec(await me.row('held').getByRole('rowheader').innerText());

  await me.open('servers', 'Servers');
  await me.field('Pinned').selectOption('Pinned: in transaction');
  await me.page.getByRole('cell', { name: client, exact: true }).waitFor();
  await ask('commit');
  await me.see('No matches');
  await me.button('Show all').click();
  await me.page.getByRole('table').waitFor();

  await me.field('Shard').fill('none');
  await me.page.getByRole('alert').waitFor();
}
