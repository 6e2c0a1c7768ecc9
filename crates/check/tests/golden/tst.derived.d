/* library */
provider stable {
	probe one(int n, string s);
	probe two(int n, string s);
};
kern:::mark /args[2].next != 0/ { one(arg1, args[0]); }
syscall::read:entry { self->n = args[0]; self->unused = 1; one(self->n, "read"); two(self->n, execname); self->n = 0; }
syscall::write:entry /defined(kern:::mark) && self->n/ { self->n++; }
syscall::openat:entry /!defined(kern:::mark)/ { two(1, "openat"); }
/* script */
kern:::mark { @a[probename] = count(); }
stable:::one /args[0] > 1/ { this->x = arg0; @b[args[1], probeprov, probename, id] = count(); }
stable:::two { this->x = args[0]; trace(this->x); }
