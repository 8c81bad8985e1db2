// Runs the tests: bundled, since some of what they import is JSX or CSS, and then by Node's own runner.

import { spawnSync } from "node:child_process";
import { readdir, rm } from "node:fs/promises";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const OPTIONS = ["--enable-source-maps", "--test", "--test-reporter=spec"];
const outdir = at(`../node_modules/.cache/ptynb-tests-${process.pid}`); // from where libraries are found
const files = (await readdir(at("."))).filter((name) => /\.test\.jsx?$/.test(name));
/** Icons are part of the bundle: Node imports none. */
const icons = {
  name: "icons",
  setup({ onResolve }) {
    onResolve({ filter: /\.svg$/ }, ({ path }) => ({ path: fileURLToPath(import.meta.resolve(path)) }));
  },
};
await build({
  entryPoints: files.map((name) => at(name)),
  outdir,
  outExtension: { ".js": ".mjs" },
  bundle: true,
  format: "esm",
  platform: "node",
  packages: "external",
  loader: { ".css": "text", ".svg": "text" },
  plugins: [icons],
  jsx: "automatic",
  jsxImportSource: "preact",
  sourcemap: "inline",
  logLevel: "warning",
});
const bundled = files.map((name) => `${outdir}/${name.replace(/\.jsx?$/, ".mjs")}`);
const { status, stdout } = spawnSync(process.execPath, [...OPTIONS, ...bundled], {
  encoding: "utf8",
  stdio: ["ignore", "pipe", "inherit"],
});
await rm(outdir, { recursive: true, force: true });
const [passed] = stdout.match(/^ℹ pass \d+$/m) ?? [];
console.log(status === 0 && passed ? passed.slice(2) : stdout);
process.exitCode = status ?? 1;
