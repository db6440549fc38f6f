// Where weir-bench is not installed, the page says what to install, and offers no run that cannot begin.
export default async function ({ visitor, token }) {
  for (const options of [{}, { viewport: { width: 390, height: 844 } }]) {
    const me = await visitor(options);
    await me.logInByToken(token);
    await me.open('lab', 'Lab');
    await me.see('Install the program weir-bench');
    if (await me.button('Start the run').count()) throw new Error('a run can be started without a lab');
    await me.checkAccessibility('no lab');
    await me.checkWidth('no lab');
  }
}
