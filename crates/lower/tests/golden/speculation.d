BEGIN { self->id = speculation(); speculate(self->id); }
BEGIN { speculate(self->id); }
BEGIN /self->id/ { n++; speculate(self->id); printf("%d", n); }
BEGIN { trace(n); discard(self->id); }
BEGIN { commit(self->id); self->id = 0; }
BEGIN { commit(self->id); system("true"); }
