/* row variable.storage-class */
/* extern and static are plain global variables; err.D_DECL_BADCLASS.auto has the others. */
extern int a;
static string b;
extern int c[int, string];
BEGIN { a = 1; b = "x"; c[1, "y"] = a; trace(b); }
