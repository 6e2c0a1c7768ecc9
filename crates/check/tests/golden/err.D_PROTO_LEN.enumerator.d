enum color { RED, GREEN };
BEGIN { trace(_enumerator[(enum color)1, 2]); }
