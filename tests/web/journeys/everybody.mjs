// Every page in light, in dark and on a phone: axe finds nothing, nothing sticks out, no console error, no lasting "Loading".
const PHONE = { viewport: { width: 390, height: 844 } };

export default async function ({ visitor, token }) {
  for (const options of [{ colorScheme: 'light' }, { colorScheme: 'dark' }, { colorScheme: 'light', ...PHONE }]) {
    const me = await visitor(options);
    const how = JSON.stringify(options);
    await me.button('Log in').waitFor();
    await me.checkAccessibility(`the login page (${how})`);
    await me.checkWidth(`the login page (${how})`);
    await me.logInByToken(token);
    for (const [address, name] of await me.pages()) {
      await me.open(address, name === 'Pools' ? 'Connection pools' : name);
      await me.page.getByText('Loading …').first().waitFor({ state: 'detached' });
      await me.checkAccessibility(`${address} (${how})`);
      await me.checkWidth(`${address} (${how})`);
    }
  }
}
