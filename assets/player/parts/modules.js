// Loads modules without a server and without a build: each becomes a separate script element, so
// that a debugger shows files, and leaves its exports in `inflightModules`, by its path.
// `visualizer/page/bundle.py` writes the list; modules already loaded are kept.
(() => {
  const made = (window.inflightModules ??= {});
  for (const [name, text] of Object.entries(/*MODULES*/ {})) {
    if (made[name]) continue;
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    script.remove();
  }
})();
