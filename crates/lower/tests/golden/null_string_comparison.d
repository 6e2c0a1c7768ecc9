/* In a comparison of strings, a NULL pointer compares as the empty string, as in the original. */
BEGIN { trace(stringof((char *)arg0) == NULL); }
BEGIN { trace(copyinstr(arg0) != ""); }
