BEGIN { self->start = 1; }
END /self->strat/ { trace(this->x); trace(a[1]); y = y + 1; }
