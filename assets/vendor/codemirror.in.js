// The parts of CodeMirror 6 that the page's code editor uses (assets/player/write/code_field.js). `npm ci && npm run codemirror` bundles
// them into codemirror.js, with their licences in codemirror.txt, from the versions in package-lock.json.

export { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
export { python } from "@codemirror/lang-python";
export { bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
export { lintGutter, setDiagnostics } from "@codemirror/lint";
export { EditorState, Prec } from "@codemirror/state";
export { drawSelection, EditorView, highlightActiveLine, highlightActiveLineGutter, highlightSpecialChars, keymap, lineNumbers } from "@codemirror/view";
export { classHighlighter } from "@lezer/highlight";
