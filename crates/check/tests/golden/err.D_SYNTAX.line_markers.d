# 100 "other.d"
BEGIN { trace(; }
#line 7
BEGIN { trace(; }
#pragma line 40 "third.d"
BEGIN { trace(; }
