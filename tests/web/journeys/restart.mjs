// The pooler goes away and comes back: the panel says so since when, keeps what it knew, and goes on by itself. Sessions are in memory, so one
// logs in again, and is where one was.
export default async function ({ visitor, ask, user, password }) {
  const me = await visitor();
  await me.logIn(user, password);
  await me.open('settings', 'Settings');
  await me.row('listen_port').waitFor();
  await ask('stop');
  await me.see(/^Weir cannot be reached since \d/);
  await me.row('listen_port').waitFor();
  await ask('start');
  await me.see('The session has ended. Please log in again.');
  await me.logIn(user, password);
  await me.row('listen_port').waitFor();
  await me.page.getByText(/^Weir cannot be reached/).waitFor({ state: 'detached' });
  await me.page.getByRole('status').filter({ hasText: /^Live$/ }).waitFor();
}
