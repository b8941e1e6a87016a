// What the "?" beside each title says: a question, two sentences, and the stop of a lesson that
// shows the subject at work. The German texts are in assets/words/de.json, as for all of the page.

/**
 * @typedef {{asks: string, says: [string, string], at: {lesson: string, stop: string}}} Explanation
 */

/** Explanations by the button's `data-ask`. @type {Record<string, Explanation>} */
export const EXPLAINED = {
  lanes: {
    asks: "What are lanes?",
    says: [
      "A lane is one request’s place in the batch. Each cell is one step; a word in it is what that step wrote.",
      "With continuous batching, whoever is done leaves and the next takes the lane at once, while the others go on.",
    ],
    at: { lesson: "dynamic-scheduling", stop: "refill" },
  },
  row: {
    asks: "What is one pass?",
    says: [
      "All tokens that the model reads in this step go through it together: one pass serves everybody.",
      "A newcomer brings its prompt, or a piece of it, the others only the token that they wrote last; the word after the arrow is what each writes next.",
    ],
    at: { lesson: "one-pass", stop: "mixed" },
  },
  mask: {
    asks: "What does the mask show?",
    says: [
      "A row for each token of this pass, a column for each that is remembered or new. Where a cell is filled, the row’s token may look at the column’s: this is attention.",
      "No token looks into another request’s text, and none into the future.",
    ],
    at: { lesson: "ragged-batching", stop: "apart" },
  },
  lengths: {
    asks: "What is a cache?",
    says: [
      "For every token that it has read, the model keeps a key and a value, so that it need not read it again.",
      "A bar is what one request holds: it grows by a prompt at first, then by one token in each step.",
    ],
    at: { lesson: "one-token", stop: "cache" },
  },
  blocks: {
    asks: "What is in the memory?",
    says: [
      "What the model has read is kept in blocks of equal size, the KV cache, so that it need not be read again.",
      "When its last block is full a request takes another; when it leaves it gives all of them back.",
    ],
    at: { lesson: "paged-kv", stop: "blocks" },
  },
  text: {
    asks: "What do the colours of a text mean?",
    says: [
      "Grey is what was asked, black what the model has written so far; the marked word is the newest. A finished text is grey, too.",
      "Sharing a pass does not mix texts: no request looks at another’s tokens.",
    ],
    at: { lesson: "ragged-batching", stop: "same-text" },
  },
  budget: {
    asks: "What is the token budget?",
    says: [
      "It is the most tokens that one step may compute, so that no step takes too long.",
      "Under most policies whoever writes takes one token of it first; prompts take what is left, in pieces if they must.",
    ],
    at: { lesson: "one-pass", stop: "gauge-budget" },
  },
  waiting: {
    asks: "Who waits here?",
    says: [
      "Requests that have arrived but hold no lane yet, in the order in which they will be let in.",
      "Below the first is why it still waits: the scheduler’s own reason, not a guess.",
    ],
    at: { lesson: "one-at-a-time", stop: "queue" },
  },
};
