// What of CodeMirror 6 the page's editor is made of (assets/player/write/editor.js). `npm ci && npm run codemirror` makes codemirror.js and
// codemirror.txt, its licences, from the versions in package-lock.json.

export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { python } from "@codemirror/lang-python";
export { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { lintGutter, setDiagnostics } from "@codemirror/lint";
export { EditorState, Prec } from "@codemirror/state";
export { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
