// How modules are loaded without a server and without a build: each becomes a script element of its own, so that a debugger shows files, and
// leaves what it exports in `inflightModules`, by its path. `visualizer/page/bundle.py` writes the list; what is there already stays.
(() => {
  const made = (window.inflightModules ??= {});
  for (const [name, text] of Object.entries(/*MODULES*/{})) {
    if (made[name]) continue;
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    script.remove();
  }
})();
