/* Only the actions say what type these have. */
BEGIN /self->last == 0/ { self->last = 1; }
BEGIN /!seen[pid, execname]/ { seen[pid, execname] = timestamp; }
BEGIN /this->n < 3 && name != "x"/ { this->n = (char)4; name = execname; }
/* The predicate has what the actions want. */
BEGIN /(first = (short)5) != 0/ { trace(first); }
/* Both assign: the actions' type counts. */
BEGIN /(both = 1) != 0/ { both = (long)2; }
/* Divided by if. */
BEGIN /self->depth == 0/ { if (pid > 1) { self->depth = (short)1; } else { trace(self->depth); } }
BEGIN /(level = 2) != 0/ { if (level) { trace(level); } }
