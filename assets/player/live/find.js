// Finds a request of the followed engine by its id: among the steps that are kept, or as soon as
// the request comes. Ids are data: always text.

import { find } from "../parts/dom.js";
import { tell } from "../parts/speech.js";
import { requestNamed } from "../run/ids.js";

const NONE =
  "No request in the steps that are kept has an id that begins so. It is selected as soon as it comes.";

export class FindRequest {
  /**
   * @param {HTMLFormElement} form
   * @param {(run: Run, request: RunRequest) => void} select
   * @param {() => void} changed called when another id is looked for
   */
  constructor(form, select, changed) {
    this.form = form;
    this.select = select;
    this.field = /** @type {HTMLInputElement} */ (find(form, "input"));
    this.says = find(form, ".find-says");
    this.wanted = ""; // an id, or its beginning
    this.found = false; // whether it has been selected; after that, the visitor selects
    const look = () => {
      this.seek(this.field.value);
      changed();
    };
    form.addEventListener("submit", (e) => {
      e.preventDefault();
      look();
    });
    this.field.addEventListener("input", () => {
      if (!this.field.value) look();
    });
  }

  /** Look for a request by its id from now on; "" stops looking. @param {string} id */
  seek(id) {
    this.field.value = id;
    this.wanted = id.trim();
    this.found = false;
  }

  /** @param {boolean} isFollowed @param {Run[]} runs the runs on screen */
  draw(isFollowed, runs) {
    this.form.hidden = !isFollowed;
    if (!isFollowed || this.found) return;
    for (const run of runs) {
      const request = requestNamed(run, this.wanted);
      if (!request) continue;
      this.found = true;
      this.select(run, request);
      break;
    }
    const none = Boolean(this.wanted) && !this.found;
    tell(this.says, none ? NONE : "");
    this.says.hidden = !none;
  }
}
