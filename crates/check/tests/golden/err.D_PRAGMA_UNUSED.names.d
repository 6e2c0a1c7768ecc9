#pragma option quiet
#pragma attributes Stable/Stable/Common x
#pragma D attributes Stable/Stable/Common nothing
#pragma D binding "1.0" nothing
#pragma ident "ignored"
#pragma pack(1)
#ident "ignored"
#pragma D ident "ignored"
BEGIN { x = 1; }
