// A pool under load, as the README shows it: waits until its charts have a minute, and takes the picture.
const SECONDS = 75;

export default async function ({ visitor, token, picture, ask }) {
  const me = await visitor({ viewport: { width: 1180, height: 770 }, colorScheme: 'light' });
  await me.logInByToken(token);
  await me.open('pools/test-pool', 'Transactions per second');
  await ask('load');
  await me.page.waitForTimeout(SECONDS * 1000);
  await me.page.mouse.move(0, 0);
  await me.page.screenshot({ path: picture });
}
