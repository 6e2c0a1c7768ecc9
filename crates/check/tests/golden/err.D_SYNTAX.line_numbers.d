# 4294967295 "x.d"
BEGIN { trace(; }
BEGIN { trace(; }
# 18446744073709551615 "y.d"
BEGIN { trace(; }
BEGIN { trace(; }
