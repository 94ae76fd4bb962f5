#!/usr/bin/env node
// Starts the binary of this system, which a package of its own brings along. Hands on arguments, streams,
// signals and the exit code. Never downloads anything.
"use strict";

const { spawn } = require("node:child_process");
const { constants } = require("node:os");

const name = `plimsoll-${process.platform}-${process.arch}`;
let binary;
try {
  binary = require.resolve(`${name}/bin/plimsoll`);
} catch {
  console.error(
    `plimsoll: the package ${name} is not installed. Either npm was told to leave optional ` +
      "dependencies out, or there is none for this system: build it with `cargo install --path .`",
  );
  process.exit(1);
}

const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
// A terminal sends these to both; whoever sends them to this process alone means the binary.
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`plimsoll: ${binary} can't be started: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  process.exit(signal === null ? code : 128 + constants.signals[signal]);
});
