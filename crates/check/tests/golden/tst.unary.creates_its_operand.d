/* As the original: an int64_t, of a thread, a clause, or an element. */
BEGIN { y = !self->b; z = -this->c; w = ~a["k"]; v = +self->d[1, execname]; }
BEGIN /!self->first/ { self->first = (short)1; }
BEGIN /!later[pid]/ { }
BEGIN { later[pid] = 3; self->b = 7; }
