inline int twice[int x] = x + x;
inline string side[int x, string other] = x > 0 ? "right" : x < 0 ? "left" : other;
inline int SIZE = twice[3] + 1;
inline int64_t wide[char c] = twice[c] * SIZE;
int table[int, string];
BEGIN { trace(twice[pid]); trace(side[arg0, execname]); trace(SIZE); trace(twice[twice[2]]); }
END / side[arg0, "middle"] == "left" / { x = wide[arg1]; y = 3; trace(twice[y++]); }
