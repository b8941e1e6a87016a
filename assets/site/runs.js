// Data as scripts, so that a folder opened from disk can load it: the file at `url` calls
// `inflightBring(url, data)`.
(() => {
  const waiting = {};
  window.inflightBring = (url, data) => waiting[url](data);
  window.inflightEarly = new Proxy(
    {},
    {
      get: (_, url) =>
        new Promise((resolve, reject) => {
          waiting[url] = resolve;
          const script = document.createElement("script");
          script.src = url;
          script.onerror = () => reject(new Error(`${url} is not there`));
          document.head.append(script);
        }),
    },
  );
})();
