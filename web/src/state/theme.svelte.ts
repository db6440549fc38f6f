// Light, dark, or as the system has it. The choice stays in this browser; public/theme.js sets it before the first paint.

export type Theme = 'system' | 'light' | 'dark';
const NEXT: Record<Theme, Theme> = { system: 'light', light: 'dark', dark: 'system' };
const KEY = 'weir-theme';

class ThemeState {
  choice = $state<Theme>(stored());
  /** Counts changes of the theme, so that canvases are drawn anew. */
  turn = $state(0);

  constructor() {
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => (this.turn += 1));
  }

  next(): void {
    this.choice = NEXT[this.choice];
    if (this.choice === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.choice;
    try {
      if (this.choice === 'system') localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, this.choice);
    } catch {
      // Storage is forbidden: the choice lasts as long as the page.
    }
    this.turn += 1;
  }
}

function stored(): Theme {
  const set = document.documentElement.dataset.theme;
  return set === 'light' || set === 'dark' ? set : 'system';
}

export const theme = new ThemeState();
