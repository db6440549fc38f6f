// Where the process is no node of a fleet, the menu has no such page, and its address says how there would be one.
export default async function ({ visitor, token }) {
  const me = await visitor();
  await me.logInByToken(token);
  const names = (await me.pages()).map(([, name]) => name);
  if (!names.includes('Clusters') || names.includes('Fleet')) throw new Error(`the menu has ${names}`);
  await me.open('fleet', 'Fleet');
  await me.see('This process is not a node of a fleet: the setting fleet is not set.');
  await me.see('docs/fleet.md');
  await me.checkAccessibility('no fleet');
  await me.checkWidth('no fleet');
}
