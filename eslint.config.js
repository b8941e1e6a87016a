import js from "@eslint/js";

const browser = [
  "window", "document", "location", "history", "localStorage", "sessionStorage", "navigator", "console", "performance", "fetch", "crypto", "matchMedia", "getComputedStyle",
  "requestAnimationFrame", "cancelAnimationFrame", "setTimeout", "clearTimeout", "btoa", "atob", "URL", "URLSearchParams", "Blob", "Response",
  "AbortController", "localStorage", "sessionStorage", "CustomEvent", "MessageChannel", "Image", "CSS", "HTMLElement", "Node", "XMLSerializer", "ResizeObserver", "MutationObserver",
  "IntersectionObserver", "ReadableStream", "Worker", "TextEncoder", "TextDecoder", "TextDecoderStream", "CompressionStream", "DecompressionStream", "WebAssembly",
];
const worker = ["self", "WebAssembly", "caches", "postMessage", "close", "importScripts", "XMLHttpRequest", "WebSocket", "EventSource", "FontFace", "indexedDB", "cookieStore",
  "setInterval", "clearInterval"];

export default [
  { ignores: [".venv/", "out/", "assets/vendor/codemirror.js"] },
  js.configs.recommended,
  {
    files: ["assets/engine/**", "tests/data/**"],
    languageOptions: { globals: Object.fromEntries(worker.map((name) => [name, "readonly"])) },
  },
  {
    languageOptions: { globals: Object.fromEntries(browser.map((name) => [name, "readonly"])) },
    rules: {
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_", ignoreRestSiblings: true }],
      "no-control-regex": "off", // prompts hold control characters: they are looked for
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
      "no-implicit-coercion": "error",
      "no-param-reassign": "error",
      "no-shadow": "off", // a module's names are its own, a function's too
      "max-lines": ["error", 450],
    },
  },
];
