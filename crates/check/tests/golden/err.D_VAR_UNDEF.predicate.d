/* Neither order of checking succeeds: the missing variable is reported once. */
BEGIN /self->x/ { self->x = self->y; }
BEGIN /self->p/ { self->q = self->r; }
BEGIN /(self->s = 1) != 0/ { trace(self->s); trace(self->t); }
