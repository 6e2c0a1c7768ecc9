BEGIN { trace(execnam); trace(zzzzzz); }
