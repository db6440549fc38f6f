// Errors from before the page was opened are on the chart and in the totals beside it.
export default async function ({ visitor, token }) {
  const me = await visitor();
  await me.logInByToken(token);
  await me.open('pools/app', 'app');
  await me.see('3 in all');
  await me.button('Table of Errors per second, by SQLSTATE').click();
  const table = me.page.getByRole('region', { name: 'Errors per second, by SQLSTATE, as a table' });
  await table.getByRole('columnheader', { name: '22012' }).waitFor();
  await table.getByRole('cell', { name: /^[1-9]/ }).first().waitFor();
}
