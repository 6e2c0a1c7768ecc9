struct pair { int a; char b[6]; };
struct pair x, y, z;
BEGIN { z = pid ? x : y; trace((pid ? x : y).a); }
