BEGIN { printm(8, arg0); printm(8, memref("x", 4)); trace(memref(arg0, 8)); }
