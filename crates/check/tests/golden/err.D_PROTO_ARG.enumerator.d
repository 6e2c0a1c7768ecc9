BEGIN { trace(_enumerator[3]); }
