// Events as objects. They come as in a trace file: every record is an array in field order, and the
// field names come once beside them, as declared in core/trace/events.py. So a new field needs no
// line here.

/**
 * The fields of each record, in order; for each the name of the record it holds, in a list if it
 * holds several; its default if it may be left out; or null.
 * @typedef {Record<string, Record<string, string | string[] | {default: any} | null>>} Records
 */

/**
 * A function that turns an event into an object, with field names in JavaScript style (`kv_len`
 * is `kvLen`).
 * @param {Records} records
 * @returns {(event: any) => StepEvent}
 */
export function eventReader(records) {
  /** @type {Record<string, [string, string, any][]>} */
  const kinds = Object.fromEntries(
    Object.entries(records).map(([name, fields]) => [
      name,
      Object.entries(fields).map(([field, kind]) => [field, camel(field), kind]),
    ]),
  );
  const read = (/** @type {any} */ kind, /** @type {any} */ value) => {
    if (Array.isArray(kind))
      return (value ?? []).map((/** @type {any} */ row) => record(kind[0], row));
    if (typeof kind === "string") return value ? record(kind, value) : null;
    return value === undefined && kind ? kind.default : value;
  };
  const record = (/** @type {string} */ name, /** @type {any[]} */ row) => {
    /** @type {any} */
    const found = {};
    for (let i = 0; i < kinds[name].length; i += 1)
      found[kinds[name][i][1]] = read(kinds[name][i][2], row[i]);
    return found;
  };
  return (event) =>
    /** @type {any} */ (
      Object.fromEntries(
        kinds.StepEvent.map(([field, key, kind]) => [key, read(kind, event[field])]),
      )
    );
}

/** What is odd in another engine's step, a sentence each. @param {StepEvent} event */
export const warningsOf = (event) => event.warnings || [];

const camel = (/** @type {string} */ name) =>
  name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
