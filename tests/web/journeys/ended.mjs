// The session ends while a page is open: it says so, and after logging in one is where one was.
export default async function ({ visitor, ask, user, password }) {
  const me = await visitor();
  await me.logIn(user, password);
  await me.open('clients', 'Clients');
  await ask('take the key away');
  await me.see('The session has ended. Please log in again.');
  await me.hasFocus(me.field('Name'));
  await ask('give it back');
  await me.logIn(user, password);
  await me.heading('Clients').waitFor();
}
