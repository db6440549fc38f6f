// Sets the theme that was chosen before the first pixel is drawn; the switch itself is src/state/theme.svelte.ts.
try {
  var theme = localStorage.getItem('weir-theme');
  if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
} catch (_) {
  // Storage is forbidden: the system's theme it is.
}
