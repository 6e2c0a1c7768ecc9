static extern int x;
self this int y;
