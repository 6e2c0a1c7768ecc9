BEGIN { if ("text") { trace(1); trace(nothing); } else { trace(execnam); } if (stack()) trace(2); if (y) trace(3); }
