BEGIN { n = 1; trace(uregs[n]); }
