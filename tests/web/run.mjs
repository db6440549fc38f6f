// Plays one journey through the panel in a real browser. The test that started it stands at the other end of the pipes: it answers what
// only it can do (end the pooler, start it again). Fails on whatever the journey does not find, and on any error in the page's console.
//
// Usage: node run.mjs JOURNEY, with a JSON object in WEIR_SCENE: { panel, token, user, password, bin, chromium }
import { execFile } from 'node:child_process';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

import { chromium } from 'playwright-core';

import { Visitor } from './visitor.mjs';

const scene = JSON.parse(process.env.WEIR_SCENE);
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const run = promisify(execFile);

const browser = await chromium.launch({ executablePath: scene.chromium, args: ['--no-sandbox'] });
const visitors = [];

const stage = {
  ...scene,
  /** Somebody with a browser of their own: cookies, theme, window. */
  async visitor(options = {}) {
    const visitor = await Visitor.enter(browser, scene, options);
    visitors.push(visitor);
    return visitor;
  },
  /** Asks the test to do something to the pooler, and waits until it is done. */
  async ask(what) {
    console.log(JSON.stringify({ ask: what }));
    return (await answers.next()).value;
  },
  /** One of PostgreSQL's programs. */
  program: (name, ...args) => run(`${scene.bin}/${name}`, args, { timeout: 60_000, env: { ...process.env, PGPASSWORD: scene.password } }),
};

let failed = false;
try {
  const { default: play } = await import(`./journeys/${process.argv[2]}.mjs`);
  await play(stage);
  for (const visitor of visitors) visitor.complain();
} catch (error) {
  failed = true;
  console.error(error);
  for (const [index, visitor] of visitors.entries()) await visitor.leaveTraces(`${scene.traces}/${process.argv[2]}-${index}`);
}
await browser.close();
process.exit(failed ? 1 : 0);
