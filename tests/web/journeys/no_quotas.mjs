// Without quotas_file the page says how quotas are set, and offers nothing that cannot be done.
export default async function ({ visitor, token }) {
  for (const options of [{}, { viewport: { width: 390, height: 844 } }]) {
    const me = await visitor(options);
    await me.logInByToken(token);
    await me.open('quotas', 'Quotas');
    await me.see('the setting quotas_file is not set');
    await me.see('quotas_file = /etc/weir/quotas');
    if (await me.button('Set a limit').count()) throw new Error('a limit can be set without a file');
    await me.checkAccessibility('quotas without a file');
    await me.checkWidth('quotas without a file');
  }
}
