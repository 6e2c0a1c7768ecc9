// Counts the system calls of a command: node count.js 'ls -l /etc'. addon.c says how it is built.
"use strict";

const { trace } = require(process.env.DTRACE_ADDON || "./addon.node");

const program = "syscall:::entry /pid == $target/ { @[probefunc] = count(); }";
trace(program, process.argv[2], (line) => {
  const event = JSON.parse(line);
  if (event.event !== "aggregation") return;
  for (const row of event.rows) console.log(`${row.key[0].padEnd(24)} ${row.values[0].value}`);
});
