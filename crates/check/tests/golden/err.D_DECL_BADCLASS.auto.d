auto int x;
register int y;
