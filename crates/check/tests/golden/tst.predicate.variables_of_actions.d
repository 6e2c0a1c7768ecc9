/* Only the actions determine the types of these variables. */
BEGIN /self->last == 0/ { self->last = 1; }
BEGIN /!seen[pid, execname]/ { seen[pid, execname] = timestamp; }
BEGIN /this->n < 3 && name != "x"/ { this->n = (char)4; name = execname; }
/* The predicate defines the variable that the actions use. */
BEGIN /(first = (short)5) != 0/ { trace(first); }
/* Both assign: the type of the actions takes effect. */
BEGIN /(both = 1) != 0/ { both = (long)2; }
/* Divided by if. */
BEGIN /self->depth == 0/ { if (pid > 1) { self->depth = (short)1; } else { trace(self->depth); } }
BEGIN /(level = 2) != 0/ { if (level) { trace(level); } }
