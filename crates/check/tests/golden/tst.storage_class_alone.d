const c;
self x, y;
this z;
BEGIN { self->x = 4294967296; this->z = self->y; trace(sizeof(self->x)); trace(this->z); }
