BEGIN { trace(uregs[25]); trace(uregs[26]); trace(uregs[-1]); }
