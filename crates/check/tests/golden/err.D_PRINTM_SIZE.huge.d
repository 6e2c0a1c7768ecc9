BEGIN { printm(0xffffffff, memref(0, 8)); }
