// Plotly's own script, 5 MB, fetched when a figure needs it.

import { fetchBytes } from "./server.js";

/** The script's text, from an address where it may be gzipped. @param {string} url */
export async function plotlySource(url) {
  const bytes = await fetchBytes(url);
  const packed = bytes[0] === 0x1f && bytes[1] === 0x8b;
  return packed
    ? new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text()
    : new Response(bytes).text();
}

/** The script as an element of a page's HTML. @param {string} source */
export const inPage = (source) => `<script>${source.replace(/<\/script/gi, "<\\/script")}</script>`;
