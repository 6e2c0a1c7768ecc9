struct in { int a; };
struct out { int first; int second; int third; };
translator struct out < struct in *I > {
	first = xlate <struct out> (I).second + xlate <struct out> (I).second;
	second = xlate <struct out> (I).first + I->a;
	third = xlate <struct out> (I).third;
};
BEGIN { trace(xlate <struct out> ((struct in *)arg0).first); }
BEGIN { trace(xlate <struct out> ((struct in *)arg0).third); }
