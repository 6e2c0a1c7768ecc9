// Probes of Node.js itself, for programs that have none of their own: HTTP requests and collections of garbage.
//
//     node -r dtrace-usdt/runtime server.js          // or require('dtrace-usdt/runtime') in the program
//
//     # dtrace -n 'node*:::http-server-response { @[copyinstr(arg0), arg2] = quantize(arg3); }'
//     # dtrace -n 'node*:::gc-done { @[copyinstr(arg0)] = quantize(arg1); }'
//
//     http-server-request(method, url)                  a server has the head of a request
//     http-server-response(method, url, status, ns)     it has handed the whole response to the system
//     http-client-request(method, url)                  this program sends a request
//     http-client-response(method, url, status, ns)     it has the whole response
//     gc-done(kind, ns)                                 scavenge, mark-sweep-compact, incremental, weak-callbacks
//
// The probes of HTTP fire where it happens (`diagnostics_channel`). A collection can call no JavaScript, so `perf_hooks` reports it some
// milliseconds later: `gc-done` says how long it took, not when it was. Collections are observed only while somebody traces them, which is looked at
// ten times a second, so those of the first tenth are not seen. Node.js 18 or later.
//
// SPDX-License-Identifier: MIT OR Apache-2.0
'use strict';

const diagnostics = require('diagnostics_channel');
const { PerformanceObserver, constants } = require('perf_hooks');
const { Provider } = require('./index.js');

const LOOK_MS = 100;
const KINDS = new Map([
  [constants.NODE_PERFORMANCE_GC_MINOR, 'scavenge'],
  [constants.NODE_PERFORMANCE_GC_MAJOR, 'mark-sweep-compact'],
  [constants.NODE_PERFORMANCE_GC_INCREMENTAL, 'incremental'],
  [constants.NODE_PERFORMANCE_GC_WEAKCB, 'weak-callbacks'],
]);

const provider = new Provider('node');

/** The probes of one side: `start` fires when a request begins, `end` with the time since then. */
function follow(side, startsAt, endsAt, urlOf) {
  const start = provider.probe(`http-${side}-request`, 'char *method, char *url');
  const end = provider.probe(`http-${side}-response`, 'char *method, char *url, int status, uint64_t ns');
  const began = new WeakMap();
  diagnostics.channel(startsAt).subscribe(({ request }) => {
    if (start.enabled) start.fire(request.method, urlOf(request));
    if (end.enabled) began.set(request, process.hrtime.bigint());
  });
  diagnostics.channel(endsAt).subscribe(({ request, response }) => {
    if (!end.enabled) return;
    const since = began.get(request);
    const ns = since === undefined ? 0n : process.hrtime.bigint() - since;
    end.fire(request.method, urlOf(request), response.statusCode, ns);
  });
}

follow('server', 'http.server.request.start', 'http.server.response.finish', (request) => request.url);
follow('client', 'http.client.request.start', 'http.client.response.finish',
  (request) => `${request.protocol}//${request.getHeader('host')}${request.path}`);
const gc = provider.probe('gc-done', 'char *kind, uint64_t ns');

const observer = new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    gc.fire(KINDS.get(entry.detail.kind) || 'unknown', Math.round(entry.duration * 1e6));
  }
});
let observes = false;
setInterval(() => {
  if (gc.enabled === observes) return;
  observes = !observes;
  if (observes) observer.observe({ entryTypes: ['gc'] });
  else observer.disconnect();
}, LOOK_MS).unref();

try {
  provider.enable();
} catch (e) {
  process.emitWarning(`there are no probes of dtrace-usdt: ${e.message}`);
}
