syscall::write:entry { self->t = timestamp; }
syscall::write:return /self->t/ { @["ns"] = quantize(timestamp - self->t); self->t = 0; }
