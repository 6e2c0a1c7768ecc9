BEGIN { trace(08); trace(0779); }
