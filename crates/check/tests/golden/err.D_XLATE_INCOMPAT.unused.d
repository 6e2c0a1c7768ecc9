struct out { int a; string b; };
/* Nothing uses it. */
translator struct out < int N > { a = "text"; b = N; };
translator struct out < long N > { a = later; b = self->later; };
BEGIN { later = (int)1; self->later = "x"; trace(xlate <struct out> (timestamp).a); }
