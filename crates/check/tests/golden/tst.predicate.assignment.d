/* row predicate.assignment */
int n;
BEGIN / (n = arg0) > 3 && n++ / { trace(n); }
