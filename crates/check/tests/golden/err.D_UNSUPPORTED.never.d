BEGIN { panic(); breakpoint(); }
