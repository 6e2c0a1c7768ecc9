// Copies the C library and the licences from the repository into the package, because npm packs no links. In a package they are there.
'use strict';
const fs = require('fs');
const path = require('path');

const copy = (from, to) => {
  const source = path.join(__dirname, from);
  if (fs.existsSync(source)) fs.copyFileSync(source, path.join(__dirname, to));
};
fs.mkdirSync(path.join(__dirname, 'c'), { recursive: true });
for (const file of ['dtrace_usdt.c', 'dtrace_usdt.h']) copy(`../c/${file}`, `c/${file}`);
for (const file of ['LICENSE-MIT', 'LICENSE-APACHE']) copy(`../../${file}`, file);
