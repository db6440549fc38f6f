// An alert is seen while it holds, and after it is over with the time of its end.
export default async function ({ visitor, token, ask }) {
  const me = await visitor();
  await me.logInByToken(token);
  await me.open('alerts', 'Alerts');
  await me.see('No alerts');
  await me.see('No webhook: alert_webhook is empty.');
  await ask('let a client wait');
  await me.row('Clients wait: app').getByText('firing', { exact: true }).waitFor();
  await me.row('Clients wait: app').getByText(/A client of app has waited for a server/).waitFor();
  await me.checkAccessibility('alerts');
  await ask('serve it');
  await me.row('Clients wait: app').getByText('cleared', { exact: true }).waitFor();
  if ((await me.row('Clients wait: app').locator('time').count()) !== 2) throw new Error('not since when and until when');
}
