BEGIN { prinf("x"); }
