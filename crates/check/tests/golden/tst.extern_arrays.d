extern int a1[];
extern int a2[123][456], a3[2];
BEGIN { trace(a3[1]); }
