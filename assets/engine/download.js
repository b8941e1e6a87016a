// The download of one file. Pieces of a large file are cached as they arrive, still packed, so that
// a download that broke off resumes where it ended if the host can send parts of a file.

const PIECE = 2 ** 22; // bytes of a cached piece

/** A response for the cache; a header has its length. @param {Json} body @param {number} size */
export const stored = (body, size, type = "application/octet-stream") =>
  new Response(body, { headers: { "Content-Type": type, "Content-Length": String(size) } });

/** Whether bytes begin like a gzip file; some hosts unpack files before sending them. */
export const isPacked = (/** @type {Json} */ bytes) => bytes[0] === 0x1f && bytes[1] === 0x8b;

export class Download {
  /**
   * @param {string} address
   * @param {number} size bytes, as sent
   * @param {Cache | undefined} cache where pieces are kept; undefined: none are kept
   */
  constructor(address, size, cache) {
    this.address = address;
    this.size = size;
    this.cache = cache;
    this.stop = new AbortController();
    this.sum = 0; // bytes that `next` has returned
    this.fetched = 0; // of these, bytes from the network
    this.isOver = false; // whether nothing more will arrive
    /** @type {Uint8Array<ArrayBuffer>[]} */ this.before = []; // cached pieces still to return
    this.from = 0; // offset at which the next piece begins
    /** @type {Uint8Array<ArrayBuffer>[]} */ this.chunks = []; // what has arrived of that piece
    this.length = 0; // bytes of `chunks`
  }

  /** Request what is not cached yet. Returns the response, or null if there is none. */
  async begin() {
    const kept = await this._kept();
    const from = kept.reduce((sum, { length }) => sum + length, 0);
    const { signal } = this.stop;
    /** @type {RequestInit} */
    const rest = { headers: from ? { Range: `bytes=${from}-` } : {}, cache: "no-store", signal };
    const answer = await fetch(this.address, this.cache ? rest : { signal }).catch(() => null);
    if (answer?.status === 206) [this.before, this.from] = [kept, from];
    else if (answer?.status === 416) await this.forget();
    this.reader = answer?.body?.getReader();
    return answer;
  }

  /** The next bytes; undefined at the end. Throws if the download breaks off. */
  async next() {
    const chunk = this.before.shift() ?? (await this._arrived());
    this.sum += chunk?.length ?? 0;
    return chunk;
  }

  /** The download could not be used. What has arrived is kept if the download only broke off. */
  async failed() {
    this.reader?.cancel().catch(() => {});
    if (this.isOver && this.sum < this.size) await this._keep();
    else await this.forget();
  }

  /** Delete the cached pieces. */
  async forget() {
    for (const { url } of (await this.cache?.keys()) ?? [])
      if (url.startsWith(this._name(""))) await this.cache?.delete(url);
  }

  async _arrived() {
    let value;
    try {
      ({ value } = await /** @type {ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>} */ (
        this.reader
      ).read());
    } finally {
      this.isOver = !value;
    }
    if (!value) return undefined;
    this.fetched += value.length;
    if (!this.sum && !isPacked(value)) this.cache = undefined;
    this.chunks.push(value);
    this.length += value.length;
    if (this.length >= PIECE) await this._keep();
    return value;
  }

  async _keep() {
    const { chunks, length, from } = this;
    [this.chunks, this.length, this.from] = [[], 0, from + length];
    // without room for it the piece is fetched again next time
    if (length)
      await this.cache?.put(this._name(from), stored(new Blob(chunks), length)).catch(() => {});
  }

  /** The cached pieces before the first gap and before the last byte, which is always requested. */
  async _kept() {
    const found = [];
    for (let from = 0; ; from += found[found.length - 1].length) {
      const kept = await this.cache?.match(this._name(from)).catch(() => undefined);
      const piece = new Uint8Array((await kept?.arrayBuffer()) ?? []);
      if (!piece.length || from + piece.length >= this.size) return found;
      found.push(piece);
    }
  }

  _name(/** @type {number | string} */ from) {
    return `${this.address}?from=${from}`;
  }
}
