// Builds the panel into dist/, which the binary embeds. Assets have their content's hash in their names, so that they may be kept for ever;
// nothing is inlined into the page, because the Content-Security-Policy forbids it.
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

import { budget } from './build/budget.ts';

export default defineConfig({
  plugins: [svelte(), budget(120_000)],
  build: {
    target: 'es2022',
    // As early as they know light-dark(), which tokens.css is written in.
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
  },
  // `npm run dev` beside a Weir that runs: WEIR_PANEL=http://127.0.0.1:8432 npm run dev
  server: { proxy: { '/api': { target: 'http://127.0.0.1:8432', changeOrigin: true } } },
});
