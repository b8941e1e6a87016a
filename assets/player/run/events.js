// Turns events into objects. As in a trace file, every record comes as an array in field order, and
// the field names come once beside the records, as declared in core/trace/events.py. So a new field
// needs no change here.

/**
 * The fields of each kind of record, in order. A field's value is the name of the record it holds
 * (in a list if it holds several), its default if it may be left out, or null.
 * @typedef {Record<string, Record<string, string | string[] | {default: unknown} | null>>} Records
 */

/**
 * Returns a function that turns an event into an object whose field names are in JavaScript style
 * (`kv_len` becomes `kvLen`).
 * @param {Records} records @returns {(event: Record<string, unknown>) => StepEvent}
 */
export function eventReader(records) {
  /** @type {Record<string, [string, string, Records[string][string]][]>} */
  const kinds = Object.fromEntries(
    Object.entries(records).map(([name, fields]) => [
      name,
      Object.entries(fields).map(([field, kind]) => [field, camel(field), kind]),
    ]),
  );
  /** @type {(kind: Records[string][string], value: unknown) => unknown} */
  const read = (kind, value) => {
    if (Array.isArray(kind))
      return /** @type {unknown[][]} */ (value ?? []).map((row) => record(kind[0], row));
    if (typeof kind === "string")
      return value ? record(kind, /** @type {unknown[]} */ (value)) : null;
    return value === undefined && kind ? kind.default : value;
  };
  /** @type {(name: string, row: unknown[]) => Record<string, unknown>} */
  const record = (name, row) => {
    /** @type {Record<string, unknown>} */
    const found = {};
    for (let i = 0; i < kinds[name].length; i += 1)
      found[kinds[name][i][1]] = read(kinds[name][i][2], row[i]);
    return found;
  };
  return (event) =>
    /** @type {StepEvent} */ (
      /** @type {unknown} */ (
        Object.fromEntries(
          kinds.StepEvent.map(([field, key, kind]) => [key, read(kind, event[field])]),
        )
      )
    );
}

/** Warnings about a step of another engine, one sentence each. @param {StepEvent} event */
export const warningsOf = (event) => event.warnings || [];

const camel = (/** @type {string} */ name) =>
  name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
