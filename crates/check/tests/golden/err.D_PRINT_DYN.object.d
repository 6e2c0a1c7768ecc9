struct in { int n; };
struct out { int n; };
translator struct out < struct in *I > { n = I->n; };
struct in i;
BEGIN { print(*xlate <struct out *> (&i)); print(xlate <struct out> (&i)); }
