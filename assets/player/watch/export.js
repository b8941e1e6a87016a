// Take it away: the view as PNG, the replay as JSON; and what the server writes (JSONL, Perfetto, one HTML file).

import { download } from "../parts/dom.js";

const NAME = "inflight";

/** The page as a picture: its markup with every canvas as an image, drawn through SVG. */
export async function picture(app) {
  const { root } = app;
  const { width, height } = root.getBoundingClientRect();
  const scale = Math.max(2, window.devicePixelRatio || 1);
  const copy = root.cloneNode(true);
  const canvases = [...root.querySelectorAll("canvas")];
  [...copy.querySelectorAll("canvas")].forEach((canvas, i) => {
    const image = document.createElement("img");
    const source = canvases[i];
    if (source.width > 1 && source.clientWidth) image.src = source.toDataURL();
    image.setAttribute("style", "position:absolute;inset:0;width:100%;height:100%");
    canvas.replaceWith(image);
  });
  for (const gone of copy.querySelectorAll(".tooltip, .menu, .toast, .card, .hidden-text")) gone.remove();
  const scrolls = [...root.querySelectorAll(".texts")];
  [...copy.querySelectorAll(".texts")].forEach((el, i) => { el.style.marginTop = `${-scrolls[i].scrollTop}px`; });
  copy.style.position = "relative";
  copy.style.width = `${width}px`;
  copy.style.height = `${height}px`;
  const css = [...document.styleSheets].flatMap((sheet) => {
    try {
      return [...sheet.cssRules].filter((r) => r.cssText.includes(".inflight") || r.cssText.startsWith("@media")).map((r) => r.cssText);
    } catch {
      return [];
    }
  }).join("\n");
  const style = document.createElement("style");
  style.textContent = css;
  copy.prepend(style);
  const markup = new XMLSerializer().serializeToString(copy).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width * scale}" height="${height * scale}" viewBox="0 0 ${width} ${height}"><foreignObject width="100%" height="100%">${markup}</foreignObject></svg>`;
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  canvas.getContext("2d").drawImage(image, 0, 0);
  return new Promise((resolve, reject) => canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"));
}

export function exportMenu(app) {
  const step = app.frame ? app.frame.event.step : 0;
  const name = app.entry && /^[\w-]+$/.test(app.entry.name || "") ? `${NAME}-${app.entry.name}` : NAME;
  /** @type {any[]} */
  const items = [{
    text: "Picture of this view", note: "PNG", act: async () => {
      try {
        download(`${name}-step-${step}.png`, await picture(app));
      } catch {
        app.toast("This browser could not draw the picture.");
      }
    },
  }];
  if (!app.running && (app.replay || app.entry)) items.push({ text: "Replay", note: "JSON: every step, text and sentence", act: () => saveReplay(app, name) });
  if (app.server && !app.running) {
    for (const [kind, text, note] of [
      ["jsonl", "Trace", "JSON lines: open it here again, or with core.Trace.load"],
      ["html", "One page", "HTML that opens from disk, with no network"],
      ["perfetto", "Perfetto", "JSON for ui.perfetto.dev: a track for each lane"],
      ["plotly", "This step as a figure", "HTML, interactive"],
    ]) {
      items.push({ text, note, act: async () => {
        const id = app.entry && app.entry.id;
        if (!id) return app.toast("Only recorded, uploaded and finished runs can be exported.");
        try {
          const answer = await app.server.call("export", kind, id, step);
          if (!answer || answer.error) throw new Error(answer ? answer.error : "nothing came back");
          const a = document.createElement("a");
          a.href = answer.url;
          a.download = `${name}${kind === "plotly" ? `-step-${step}` : ""}.${{ jsonl: "jsonl", perfetto: "perfetto.json" }[kind] || "html"}`;
          a.click();
        } catch (error) {
          app.toast(`The export failed: ${error.message}`);
        }
      } });
    }
    items.push("-", { text: "Open a trace", note: "JSON lines saved from here or by core", act: () => openTrace(app) });
  }
  return items;
}

async function saveReplay(app, name) {
  const data = app.replay || (await (await fetch(app.entry.url)).json());
  download(`${name}.json`, new Blob([JSON.stringify(data)], { type: "application/json" }));
}

function openTrace(app) {
  const input = document.createElement("input");
  input.type = "file";
  input.accept = ".jsonl,.json,application/json";
  input.addEventListener("change", async () => {
    const [file] = input.files;
    if (!file) return;
    const most = app.editor.limits.upload_bytes || 32 * 2 ** 20;
    if (file.size > most) return app.toast(`The file has ${Math.round(file.size / 2 ** 20)} MiB; this page opens at most ${Math.round(most / 2 ** 20)} MiB.`);
    try {
      const answer = await app.server.call("upload", await file.text());
      if (answer.error) return app.toast(answer.error, 8000);
      await app.open({ name: null, title: "Uploaded", ...answer });
    } catch (error) {
      app.toast(`The upload failed: ${error.message}`);
    }
  });
  input.click();
}
