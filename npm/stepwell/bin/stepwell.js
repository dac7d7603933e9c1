#!/usr/bin/env node
// Runs the binary of this machine's package: @stepwell/cli-linux-x64 and its like, of which npm installs the one that fits.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const platform = `${process.platform}-${process.arch}`;

function binary() {
  // For a binary of one's own.
  if (process.env.STEPWELL_BIN) return process.env.STEPWELL_BIN;
  try {
    return require.resolve(`@stepwell/cli-${platform}/bin/stepwell`);
  } catch {
    const known = Object.keys(require("../package.json").optionalDependencies);
    console.error(
      known.includes(`@stepwell/cli-${platform}`)
        ? `stepwell: npm has not installed @stepwell/cli-${platform}, which has the binary.\nnext: npm install --include=optional`
        : `stepwell: there is no binary for ${platform}.\nnext: cargo install stepwell-cli`,
    );
    process.exit(6);
  }
}

const child = spawn(binary(), process.argv.slice(2), { stdio: "inherit" });
child.on("error", (error) => {
  console.error(`stepwell: the binary cannot be started: ${error.message}`);
  process.exit(6);
});
// A Ctrl-C reaches the whole group, so it is only passed over here; what is for this process alone is passed on. The
// binary decides how it ends.
process.on("SIGINT", () => {});
for (const signal of ["SIGTERM", "SIGHUP"]) process.on(signal, () => child.kill(signal));
child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
