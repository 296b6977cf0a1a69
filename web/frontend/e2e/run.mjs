// Runs the end-to-end tests where there is a Chromium, and says so in one line where there is none.
import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
const folders = (process.env.PATH ?? "").split(delimiter);
const found = names
  .flatMap((name) => folders.map((folder) => join(folder, name)))
  .find((path) => {
    try {
      accessSync(path, constants.X_OK);
      return true;
    } catch {
      return false;
    }
  });

if (!found) {
  console.log(`end-to-end tests skipped: no Chromium on the PATH (${names.join(", ")})`);
} else {
  const vitest = join(import.meta.dirname, "..", "node_modules", "vitest", "vitest.mjs");
  const args = [vitest, "run", "--config", "vitest.e2e.config.ts", ...process.argv.slice(2)];
  const { status } = spawnSync(process.execPath, args, {
    stdio: "inherit",
    env: { ...process.env, M3_CHROMIUM: found },
  });
  process.exitCode = status ?? 1;
}
