// Loads modules without a server or a build step: each becomes a script element of its own, so that
// a debugger shows files, and leaves its exports in `inflightModules`, by its path.
// `visualizer/page/bundle.py` writes the list; modules that are already loaded are kept.
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
