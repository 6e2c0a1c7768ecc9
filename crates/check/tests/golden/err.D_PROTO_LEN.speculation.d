BEGIN { x = speculation(1); speculate(); commit(); discard(1, 2); }
