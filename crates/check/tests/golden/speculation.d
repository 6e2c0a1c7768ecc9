BEGIN { self->id = speculation(); }
BEGIN { speculate(self->id); }
BEGIN { speculate(self->id); x = 1; }
BEGIN { x = 2; speculate(self->id); printf("%d", x); trace(x); discard(self->id); }
BEGIN { trace(1); discard(self->id); }
BEGIN { @ = count(); commit_of = 1; discard(0); }
BEGIN { commit(self->id); self->id = 0; }
BEGIN { commit(self->id); system("true"); }
BEGIN { if (x) { speculate(self->id); trace(1); } else { commit(self->id); } trace(2); }
