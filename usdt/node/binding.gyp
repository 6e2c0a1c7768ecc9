{
  "targets": [{
    "target_name": "dtrace_usdt",
    "sources": ["addon.c", "c/dtrace_usdt.c"],
    "include_dirs": ["c"],
    "cflags": ["-O2"]
  }]
}
