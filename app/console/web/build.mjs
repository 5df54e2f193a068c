// Builds the console. `node build.mjs FOLDER [HASH]` writes the files, their gzip and a manifest into FOLDER.
// `node build.mjs --tests FOLDER` writes each unit test as a program for `node --test`.
import { build } from "esbuild";
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { basename, extname, join } from "node:path";
import { gzipSync } from "node:zlib";

const PAGES = "pages";
const TESTS = "tests";
const TARGET = ["chrome120", "firefox121", "safari17"];
const options = { bundle: true, target: TARGET, jsx: "automatic", jsxImportSource: "preact" };

async function buildConsole(folder, sources) {
  const entries = (await readdir(PAGES)).filter((name) => name.endsWith(".tsx")).sort();
  const scripts = await build({
    ...options,
    entryPoints: entries.map((name) => join(PAGES, name)),
    outdir: folder,
    entryNames: "[name]-[hash]",
    format: "esm",
    // One file per page: shared chunks would be one for each set of pages that share them, a dozen requests.
    splitting: false,
    minify: true,
    legalComments: "none",
    metafile: true,
    write: false,
  });
  const files = new Map(scripts.outputFiles.map((file) => [basename(file.path), file.contents]));
  const outputs = new Map(Object.entries(scripts.metafile.outputs).map(([path, one]) => [basename(path), one]));
  const pages = {};
  for (const [name, output] of outputs) {
    if (output.entryPoint) {
      const page = basename(output.entryPoint, ".tsx");
      pages[page] = { script: name, preload: [...imported(name, outputs, new Set())].sort() };
    }
  }
  const style = await one(files, "css/console.css", "console");
  const theme = await one(files, "core/theme_at_start.ts", "theme");
  const icon = hashed(files, "icon", ".svg", await readFile("icon.svg"));
  const libraries = librariesOf(scripts.metafile.outputs);
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  const names = [...files.keys()].filter((name) => extname(name) in { ".js": 1, ".css": 1, ".svg": 1 });
  for (const [name, content] of files) {
    await writeFile(join(folder, name), content);
    await writeFile(join(folder, `${name}.gz`), gzipSync(content, { level: 9 }));
  }
  const manifest = { sources, names: names.sort(), pages, style, theme, icon, libraries };
  await writeFile(join(folder, "licenses.txt"), await licensesOf(scripts.metafile.inputs));
  await writeFile(join(folder, "manifest.json"), JSON.stringify(manifest, null, 1) + "\n");
}

// The chunks that a script imports, also indirectly.
function imported(name, outputs, found) {
  for (const { path, kind } of outputs.get(name).imports) {
    if (kind === "import-statement" && !found.has(basename(path))) {
      found.add(basename(path));
      imported(basename(path), outputs, found);
    }
  }
  return found;
}

// The licences of the libraries that are in the files, as they ask for.
async function licensesOf(inputs) {
  const packages = new Set(Object.keys(inputs).map((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(path)?.[1]));
  const texts = [];
  for (const name of [...packages].filter(Boolean).sort()) {
    const files = await readdir(join("node_modules", name));
    const file = files.find((one) => /^licen[cs]e/i.test(one));
    if (!file) throw new Error(`${name} has no licence file`);
    texts.push(`${name}\n\n${await readFile(join("node_modules", name, file), "utf8")}`);
  }
  return texts.join(`\n${"-".repeat(72)}\n\n`);
}

// Bytes of each file that come from node_modules.
function librariesOf(outputs) {
  const found = {};
  for (const [path, { inputs }] of Object.entries(outputs)) {
    if (!path.endsWith(".js")) continue;
    const own = Object.entries(inputs).filter(([input]) => input.startsWith("node_modules/"));
    found[basename(path)] = own.reduce((sum, [, { bytesInOutput }]) => sum + bytesInOutput, 0);
  }
  return found;
}

async function one(files, source, name) {
  const made = await build({ ...options, entryPoints: [source], minify: true, write: false, format: "iife" });
  return hashed(files, name, source.endsWith(".css") ? ".css" : ".js", made.outputFiles[0].contents);
}

function hashed(files, name, suffix, content) {
  const hash = createHash("sha256").update(content).digest("hex").slice(0, 8).toUpperCase();
  files.set(`${name}-${hash}${suffix}`, content);
  return `${name}-${hash}${suffix}`;
}

async function buildTests(folder) {
  const entries = (await readdir(TESTS)).filter((name) => /\.test\.tsx?$/.test(name));
  await rm(folder, { recursive: true, force: true });
  await build({
    ...options,
    entryPoints: entries.map((name) => join(TESTS, name)),
    outdir: folder,
    outExtension: { ".js": ".mjs" },
    platform: "node",
    target: "node20",
    format: "esm",
  });
}

const [first, second] = process.argv.slice(2);
if (first === "--tests") await buildTests(second);
else await buildConsole(first, second ?? "");
