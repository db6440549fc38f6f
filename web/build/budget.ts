// A build that has grown too large fails: all that a browser loads has a limit in bytes, compressed.
import { gzipSync } from 'node:zlib';

import type { Plugin } from 'vite';

export function budget(bytesMax: number): Plugin {
  return {
    name: 'weir-budget',
    apply: 'build',
    generateBundle(_options, bundle) {
      let bytes = 0;
      for (const file of Object.values(bundle)) {
        const size = gzipSync(file.type === 'chunk' ? file.code : file.source).length;
        bytes += size;
        this.info(`${file.fileName}: ${size} bytes compressed`);
      }
      this.info(`the panel: ${bytes} of at most ${bytesMax} bytes compressed`);
      if (bytes > bytesMax) this.error(`the panel has ${bytes} bytes compressed; ${bytesMax} are allowed`);
    },
  };
}
