// Loads data as scripts, because a page opened from disk cannot fetch files: the script at `url`
// calls `inflightBring(url, data)`.
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
