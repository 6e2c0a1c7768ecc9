/* A pointer of a compared string may be NULL, as the original has it. */
BEGIN { trace(stringof((char *)arg0) == NULL); }
BEGIN { trace(copyinstr(arg0) != ""); }
