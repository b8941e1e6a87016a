// The code being written: a plain text field, which becomes a CodeMirror editor once that is
// fetched. Tab indents; Escape and then Tab leaves the field.

import { h, runScript } from "../parts/dom.js";
import { t } from "../parts/speech.js";

/** @type {Promise<Foreign> | undefined} CodeMirror, fetched once for the page */
let fetched;

/** @param {string} url of the bundle that assets/vendor/codemirror.in.js describes */
function codeMirror(url) {
  fetched ??= runScript(url, "the editor could not be fetched").then(
    () => window.inflightCodeMirror,
  );
  fetched.catch(() => {
    fetched = undefined;
  });
  return fetched;
}

export class CodeField {
  /**
   * @param {HTMLElement} holder
   * @param {{url: string, changed: () => void, run: () => void, describedBy: string}} options run:
   * called on Ctrl Enter
   */
  constructor(holder, options) {
    this.holder = holder;
    this.options = options;
    this.view = null; // CodeMirror's view, once it is there
    this.field = h("textarea", {
      class: "code-field plain mono",
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      "aria-describedby": options.describedBy,
      oninput: () => options.changed(),
      onkeydown: (e) => {
        if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) options.run();
      },
    });
    holder.replaceChildren(this.field);
    this.named();
    codeMirror(options.url).then(
      (cm) => this._become(cm),
      () => {},
    ); // without CodeMirror the text field stays
  }

  get code() {
    return this.view ? this.view.state.doc.toString() : this.field.value;
  }

  /** Show other code, with an empty history. */
  set code(code) {
    if (this.view) this.view.setState(this._state(code));
    else this.field.value = code;
  }

  named() {
    (this.view?.contentDOM || this.field).setAttribute("aria-label", t("Your code, in Python"));
  }

  /**
   * Mark a line, with what is wrong there; null removes the mark.
   * @param {number | null} line from 1 @param {string} says
   */
  mark(line, says = "") {
    if (!this.view) return;
    const { state } = this.view;
    const faults = [];
    if (line && line <= state.doc.lines) {
      const { from, to, text } = state.doc.line(line);
      const indent = text.length - text.trimStart().length;
      faults.push({ from: from + indent, to, severity: "error", message: says });
    }
    this.view.dispatch(this.cm.setDiagnostics(state, faults));
  }

  /** Put the cursor on a line. @param {number} line from 1 */
  go(line) {
    if (!this.view) return this.field.focus();
    const { from } = this.view.state.doc.line(Math.min(line, this.view.state.doc.lines));
    this.view.dispatch({
      selection: { anchor: from },
      effects: this.cm.EditorView.scrollIntoView(from, { y: "center" }),
    });
    this.view.focus();
  }

  _become(/** @type {Json} */ cm) {
    this.cm = cm;
    const hadFocus = document.activeElement === this.field;
    this.view = new cm.EditorView({ state: this._state(this.field.value), parent: this.holder });
    this.field.remove();
    this.named();
    if (hadFocus) this.view.focus();
  }

  _state(/** @type {string} */ code) {
    const { cm, options } = this;
    const run = () => {
      options.run();
      return true;
    };
    return cm.EditorState.create({
      doc: code,
      extensions: [
        cm.Prec.highest(cm.keymap.of([{ key: "Mod-Enter", run }])),
        cm.lineNumbers(),
        cm.highlightActiveLineGutter(),
        cm.highlightSpecialChars(),
        cm.history(),
        cm.drawSelection(),
        cm.indentUnit.of("    "),
        cm.indentOnInput(),
        cm.bracketMatching(),
        cm.highlightActiveLine(),
        cm.python(),
        cm.syntaxHighlighting(cm.classHighlighter),
        cm.lintGutter(),
        cm.EditorView.lineWrapping,
        cm.keymap.of([...cm.defaultKeymap, ...cm.historyKeymap, cm.indentWithTab]),
        cm.EditorView.contentAttributes.of({
          "aria-label": t("Your code, in Python"),
          "aria-describedby": options.describedBy,
        }),
        cm.EditorView.updateListener.of((/** @type {Json} */ update) => {
          if (update.docChanged) options.changed();
        }),
      ],
    });
  }
}
