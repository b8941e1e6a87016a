// A spec as text: the same for the same requests, and short enough for an address.

export const SAMPLING_DEFAULTS = { temperature: 0, top_k: 0, top_p: 1, seed: 0 };
const MOST_UNPACKED = 2 ** 20; // bytes that a link may inflate to

/** The same text for the same data, whatever the order of its keys; defaults count as given. */
export function canonical({ requests, arrival_unit: unit }) {
  return JSON.stringify([unit || "step", requests.map((r) => [r.id, r.prompt ?? null, r.prompt_token_ids ?? null, r.arrival,
    Object.entries({ ...SAMPLING_DEFAULTS, ...r.sampling }).sort(([a], [b]) => (a < b ? -1 : 1))])]);
}

async function through(bytes, stream) {
  return new Uint8Array(await new Response(new Blob([bytes]).stream().pipeThrough(stream)).arrayBuffer());
}

/** A spec for an address, or null where it is too long for one. */
export async function pack(data) {
  const bytes = await through(new TextEncoder().encode(JSON.stringify(data)), new CompressionStream("deflate-raw"));
  if (bytes.length > 6000) return null; // too long for an address
  return btoa(String.fromCharCode(...bytes)).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
}

/** The spec of an address. Throws where there is none. */
export async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
  const pieces = [];
  let size = 0;
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")).getReader();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    size += piece.value.length;
    if (size > MOST_UNPACKED) throw new Error("too long");
    pieces.push(piece.value);
  }
  return JSON.parse(await new Blob(pieces).text());
}

/** Whether the text of a link can be a spec at all; the server checks what is inside. */
export function isSpec(spec) {
  const plain = (value) => Boolean(value) && typeof value === "object" && !Array.isArray(value);
  if (!plain(spec) || !(spec.config === undefined || plain(spec.config))) return false;
  if (typeof spec.preset === "string") return true;
  return plain(spec.config) && plain(spec.workload) && Array.isArray(spec.workload.requests) && spec.workload.requests.every(plain);
}

/** The workload in a text that was saved here; null where it is something else. */
export function savedIn(text) {
  try {
    const data = JSON.parse(text);
    const { requests } = data.workload || data;
    return Array.isArray(requests) && requests.every((r) => r && typeof r === "object") ? data : null;
  } catch {
    return null;
  }
}
