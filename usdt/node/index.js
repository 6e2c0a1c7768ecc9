// Probes that a program makes while it runs (dynamic USDT), for dtrace, bpftrace and gdb.
//
//     const { Provider } = require('dtrace-usdt');
//     const provider = new Provider('myapp');
//     const request = provider.probe('request-start', 'int id, char *path');
//     provider.enable();
//
//     request.fire(42, '/index.html');              // does nothing while nobody traces the probe
//     if (request.enabled) request.fire(42, computePath());
//
//     # dtrace -n 'myapp*:::request-start { printf("%d %s", arg0, copyinstr(arg1)); }'
//
// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';

const native = require('./build/Release/dtrace_usdt.node');

// The semaphore of a probe that is not enabled.
const NEVER = new Uint16Array(1);
const TYPES = new Map([[Number, 'int64_t'], [BigInt, 'int64_t'], [String, 'char *'], [Boolean, 'bool']]);

/** A probe. Made by {@link Provider#probe}. */
class Probe {
  constructor(handle, index) {
    this._handle = handle;
    this._index = index;
    // The semaphores are memory that the kernel changes: a look at them needs no call.
    this._semaphores = NEVER;
    this._at = 0;
  }

  /** True while somebody traces the probe. */
  get enabled() {
    return this._semaphores[this._at] > 0;
  }

  /** Fires the probe if somebody traces it. */
  fire(...args) {
    if (this._semaphores[this._at] > 0) native.fire(this._handle, this._index, args);
  }
}

/** A provider and its probes. */
class Provider {
  constructor(name) {
    this._handle = native.create(String(name));
    this._probes = [];
  }

  /** Adds a probe. Its types are those of C in one text ('int id, char *path'), or Number, BigInt, String and Boolean each by itself. */
  probe(name, ...types) {
    const all = types.map((type) => {
      const text = typeof type === 'string' ? type : TYPES.get(type);
      if (text === undefined) throw new TypeError('the type of an argument is Number, BigInt, String, Boolean or a text of C');
      return text;
    });
    native.add(this._handle, String(name), all.join(', '));
    const probe = new Probe(this._handle, this._probes.length);
    this._probes.push(probe);
    return probe;
  }

  /** Makes the probes visible to tracers: in memory, or by an unlinked file of a directory. */
  enable(directory) {
    const semaphores = new Uint16Array(native.enable(this._handle, directory === undefined ? null : String(directory)));
    for (const probe of this._probes) {
      probe._semaphores = semaphores;
      probe._at = probe._index;
    }
  }

  /** Removes the provider. Its probes do nothing then. A provider that is not closed stays until the process ends. */
  close() {
    for (const probe of this._probes) {
      probe._semaphores = NEVER;
      probe._at = 0;
    }
    native.close(this._handle);
  }
}

module.exports = { Provider, Probe };
