// How Svelte compiles the panel: runes everywhere, no legacy mode.
export default { compilerOptions: { runes: true } };
