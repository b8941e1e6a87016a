// Events as objects. They come as a trace file has them: every record is an array in field order, and the names of the fields come once beside them,
// as core/trace/events.py declares them. So a new field needs no line here. Knows no run.

/**
 * The fields of each record, in order; of a field the name of the record that it holds, in a list where it holds several, else null.
 * @typedef {Record<string, Record<string, string | string[] | null>>} Records
 */

/**
 * What makes an object of an event, its fields named as JavaScript names them (`kv_len` is `kvLen`).
 * @param {Records} records
 * @returns {(event: any) => StepEvent}
 */
export function eventReader(records) {
  /** @type {Record<string, [string, string, any][]>} */
  const kinds = Object.fromEntries(Object.entries(records).map(([name, fields]) => [name, Object.entries(fields).map(([field, kind]) => [field, camel(field), kind])]));
  const read = (/** @type {any} */ kind, /** @type {any} */ value) => {
    if (kind === null || value === null) return value;
    return Array.isArray(kind) ? (value ?? []).map((/** @type {any} */ row) => record(kind[0], row)) : record(kind, value);
  };
  const record = (/** @type {string} */ name, /** @type {any[]} */ row) => {
    /** @type {any} */
    const found = {};
    for (let i = 0; i < kinds[name].length; i += 1) found[kinds[name][i][1]] = read(kinds[name][i][2], row[i]);
    return found;
  };
  return (event) => /** @type {any} */ (Object.fromEntries(kinds.StepEvent.map(([field, key, kind]) => [key, read(kind, event[field])])));
}

/** What is odd in another engine's step, a sentence each. @param {StepEvent} event */
export const warningsOf = (event) => event.warnings || [];

const camel = (/** @type {string} */ name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase());
