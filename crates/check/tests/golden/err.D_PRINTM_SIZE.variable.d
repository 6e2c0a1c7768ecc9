BEGIN { printm(arg1, memref(arg0, 4)); }
