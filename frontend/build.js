// Builds what the Python package contains from the sources in `src`: `node build.js`; `--check` compares instead.

import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, relative } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const SHARED = {
  absWorkingDir: at("."),
  bundle: true,
  preserveSymlinks: true, // the same bundle where node_modules is a link
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "eof",
  logLevel: "warning",
  metafile: true,
  minify: true,
  target: "es2022",
  write: false,
};

/** Styles as a text, with all that they import, for a script that adds them to its document. */
const stylesAsText = {
  name: "styles as text",
  setup({ onLoad }) {
    onLoad({ filter: /\.css$/ }, async ({ path }) => {
      const { outputFiles } = await build({ ...SHARED, entryPoints: [path], outdir: "." });
      return { contents: outputFiles[0].text.trim(), loader: "text" };
    });
  },
};

/** Icons as texts, with what differs between them and what their style sheet has not. */
const iconsAsText = {
  name: "icons as text",
  setup({ onLoad }) {
    onLoad({ filter: /\.svg$/ }, async ({ path }) => {
      const text = await readFile(path, "utf8");
      const shapes = text.replace(/<!--.*?-->|<svg[^>]*>|<\/svg>/gs, "").replace(/\s*\n\s*/g, "").replaceAll(" />", "/>");
      return { contents: `<svg viewBox="0 0 24 24">${shapes}</svg>`, loader: "text" };
    });
  },
};

const WIDGETS = "../ptynb/widgets/static";
const REPORT = "../ptynb/report/static";
const BUNDLES = [
  { entryPoints: ["src/index.js"], outfile: `${WIDGETS}/ptynb.js`, format: "esm", plugins: [stylesAsText, iconsAsText] },
  { entryPoints: ["src/loader.js"], outfile: `${WIDGETS}/loader.js`, format: "esm" },
  { entryPoints: ["src/report/report.js"], outfile: `${REPORT}/report.js`, format: "iife" },
  { entryPoints: ["src/report/styles.css"], outfile: `${REPORT}/report.css` },
];

/** Name, version and licence of each library in a bundle, which their licences demand, as a comment. */
async function noticesOf({ inputs }) {
  const found = Object.keys(inputs).map((path) => path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1]);
  const libraries = [...new Set(found)].filter(Boolean).sort();
  const notices = libraries.map(async (name) => {
    const { version } = JSON.parse(await readFile(at(`node_modules/${name}/package.json`), "utf8"));
    return `/*!\n${name} ${version}\n\n${(await readFile(at(`node_modules/${name}/LICENSE`), "utf8")).trim()}\n*/\n`;
  });
  return (await Promise.all(notices)).join("");
}

for (const bundle of BUNDLES) {
  const { metafile, outputFiles } = await build({ ...SHARED, ...bundle });
  const [{ path, text }] = outputFiles;
  const content = text + (await noticesOf(metafile));
  const name = relative(at(".."), path);
  if (!process.argv.includes("--check")) {
    await mkdir(dirname(path), { recursive: true });
    await writeFile(path, content);
    console.log(`${name}: ${Buffer.byteLength(content)} bytes`);
  } else if ((await readFile(path, "utf8").catch(() => null)) !== content) {
    console.error(`${name} is not what its sources give: run "npm run build" in frontend, and commit the file.`);
    process.exitCode = 1;
  }
}
