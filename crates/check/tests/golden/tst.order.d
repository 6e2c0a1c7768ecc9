BEGIN { this->x = 1; self->y = "s"; }
END { trace(this->x); trace(self->y); }
syscall::write:entry { self->t = timestamp; }
syscall::write:return /self->t/ { @["ns"] = quantize(timestamp - self->t); self->t = 0; }
