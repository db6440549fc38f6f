// Somebody at a browser: finds things as people and screen readers do, by role and name, and waits for conditions, never for a time.
import { writeFile } from 'node:fs/promises';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const PATIENCE_MS = 60_000;
// What the browser itself reports of answers that a journey provokes on purpose: 401, 409, 422, 429, and a pooler that is away.
const PROVOKED = /Failed to load resource|net::ERR_/;

export class Visitor {
  #errors = [];

  constructor(page, panel) {
    this.page = page;
    this.panel = panel;
    page.setDefaultTimeout(PATIENCE_MS);
    page.on('pageerror', (error) => this.#errors.push(String(error)));
    page.on('dialog', (dialog) => {
      this.#errors.push(`a script opened a dialog: ${dialog.message()}`);
      void dialog.dismiss();
    });
    page.on('console', (message) => {
      if (message.type() === 'error' && !PROVOKED.test(message.text())) this.#errors.push(message.text());
    });
  }

  static async enter(browser, scene, options) {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 }, permissions: ['clipboard-read', 'clipboard-write'], ...options });
    const visitor = new Visitor(await context.newPage(), scene.panel);
    await visitor.page.goto(scene.panel);
    return visitor;
  }

  /** Throws what the page's console said. */
  complain() {
    if (this.#errors.length > 0) throw new Error(`errors in the page:\n${this.#errors.join('\n')}`);
  }

  async leaveTraces(path) {
    await this.page.screenshot({ path: `${path}.png` }).catch(() => {});
    await writeFile(`${path}.txt`, [...this.#errors, await this.page.locator('body').innerText().catch(() => '')].join('\n')).catch(() => {});
  }

  button = (name) => this.page.getByRole('button', { name, exact: typeof name === 'string' });
  field = (name) => this.page.locator('input, select').and(this.page.getByLabel(name, { exact: true }));
  /** An action of a menu. */
  async choose(menu, action) {
    await this.button(menu).first().click();
    await this.page.getByRole('menuitem', { name: action, exact: true }).click();
  }

  tab = (name) => this.page.getByRole('tab', { name, exact: true });
  heading = (name) => this.page.getByRole('heading', { name });
  row = (name) => this.page.getByRole('row').filter({ has: this.page.getByRole('rowheader', { name }) });
  see = (text) => this.page.getByText(text).first().waitFor();

  /** Inside: the menu is there. */
  inside = () => this.page.getByRole('navigation', { name: 'Pages' }).waitFor();

  async logIn(user, password) {
    await this.field('Name').fill(user);
    await this.field('Password').fill(password);
    await this.button('Log in').click();
    await this.inside();
  }

  async logInByToken(token) {
    await this.tab('Token').click();
    await this.field('Token').fill(token);
    await this.button('Log in').click();
    await this.inside();
  }

  /** The pages that this Weir can answer, by the menu: [address, name]. */
  async pages() {
    const links = this.page.getByRole('navigation', { name: 'Pages' }).getByRole('link');
    return links.evaluateAll((found) => found.map((link) => [link.getAttribute('href').slice(2), link.textContent.trim()]));
  }

  async open(hash, heading) {
    await this.page.goto(`${this.panel}/#/${hash}`);
    await this.heading(heading).first().waitFor();
  }

  clipboard = () => this.page.evaluate(() => navigator.clipboard.readText());

  /** Presses Tab until what is wanted has the focus, as somebody without a mouse does. */
  async tabTo(locator) {
    await locator.waitFor();
    for (let presses = 0; presses < 80; presses += 1) {
      if (await locator.evaluate((element) => element === document.activeElement)) return;
      await this.page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not lead to ${locator}`);
  }

  /** Waits until it has the focus. */
  hasFocus = (locator) => locator.and(this.page.locator(':focus')).waitFor();

  async tabAndPress(locator, key = 'Enter') {
    await this.tabTo(locator);
    await this.page.keyboard.press(key);
  }

  async tabAndType(locator, text) {
    await this.tabTo(locator);
    await this.page.keyboard.press('Control+A');
    await this.page.keyboard.type(text);
  }

  /** Every rule of axe on what is shown now; throws with the elements that break one. */
  async checkAccessibility(where) {
    await this.page.evaluate(AXE);
    const { violations } = await this.page.evaluate(() => globalThis.axe.run());
    const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => `${node.html} ${node.failureSummary}`).join('; ')}`);
    if (found.length > 0) throw new Error(`${where} breaks\n${found.join('\n')}`);
  }

  /** Nothing sticks out of the page sideways. */
  async checkWidth(where) {
    const over = await this.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (over > 0) throw new Error(`${where} is ${over} pixels wider than the window`);
  }
}
