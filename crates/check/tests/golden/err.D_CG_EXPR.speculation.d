BEGIN { x = commit(1); y = speculate(1) + 1; }
