struct point { int x; int y; };
struct point a[int];
int x;
BEGIN { this->p = &a[1].x; this->q = &a[1]; this->r = &x; }
