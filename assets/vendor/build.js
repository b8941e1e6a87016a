// Builds codemirror.js, one classic script that sets `window.inflightCodeMirror`, and codemirror.txt, the licences of the packages in it. Both are committed, so that
// neither the page nor its server needs npm, and in ASCII, so that no invisible character hides in them. An argument names another folder to write them to.

import { readFile, writeFile } from "node:fs/promises";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { argv } from "node:process";
import { build } from "esbuild";

const here = new URL("./", import.meta.url);
const at = (name) => new URL(name, here).pathname;
const out = (name) => join(argv[2] ?? at("."), name);

const { metafile } = await build({
  entryPoints: [at("codemirror.in.js")], outfile: out("codemirror.js"), bundle: true, minify: true, format: "iife", globalName: "inflightCodeMirror",
  target: "es2022", legalComments: "none", metafile: true, absWorkingDir: at("../.."),
  tsconfigRaw: {}, // tsconfig.json holds settings for tsc, which must not change the bundle
  banner: { js: "/* CodeMirror 6, MIT: see codemirror.txt. Made by build.js beside this file. */" },
});

const packages = [...new Set(Object.keys(metafile.inputs).map((path) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean))].sort();
const about = await Promise.all(packages.map(async (name) => {
  const folder = at(`../../node_modules/${name}/`);
  const { version, license } = JSON.parse(await readFile(`${folder}package.json`, "utf8"));
  const text = existsSync(`${folder}LICENSE`) ? await readFile(`${folder}LICENSE`, "utf8") : "";
  return { name: `${name} ${version} (${license})`, text: text.trim().replace(/\r\n/g, "\n") };
}));
const texts = [...new Set(about.map(({ text }) => text))];
const sections = texts.map((text) => `${about.filter((one) => one.text === text).map(({ name }) => name).join("\n")}\n\n${text}`);
await writeFile(out("codemirror.txt"), `${sections.join(`\n\n${"-".repeat(72)}\n\n`)}\n`);
