import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";

test("a class has its rule in one file, so that no view gets the styles of another one", async () => {
  /** @type {Map<string, string>} */
  const homes = new Map();
  for (const name of await readdir("src", { recursive: true })) {
    if (!name.endsWith(".css") || name.startsWith("report")) continue;
    const text = await readFile(`src/${name}`, "utf8");
    for (const [, one] of text.matchAll(/^(\.[\w-]+)(?= \{|,$)/gm)) {
      assert.equal(homes.get(one) ?? name, name, `${one} is in two files`);
      homes.set(one, name);
    }
  }
  assert.ok(homes.size > 100);
});
