// Recorded runs as scripts, so that a folder opened from disk can load them: `runs/<id>.js` calls `inflightRun(id, replay)`.
(() => {
  const waiting = {};
  window.inflightRun = (id, replay) => waiting[id](replay);
  window.inflightEarly = new Proxy({}, {
    get: (_, url) => new Promise((resolve, reject) => {
      waiting[url.replace(/^.*\/|\.js$/g, "")] = resolve;
      const script = document.createElement("script");
      script.src = url;
      script.onerror = () => reject(new Error(`${url} is not there`));
      document.head.append(script);
    }),
  });
})();
