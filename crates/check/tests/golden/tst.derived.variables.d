/* library */
provider stable {
	probe one(int n);
	probe two(int n);
};
this int size;
self int calls;
self int unused;
uint64_t bytes[int];
int64_t parts[int];
syscall::read:entry { self->calls++; }
syscall::write:entry { parts[arg0] = 1; one(self->calls); }
syscall::openat:entry { this->size = bytes[arg0]; bytes[arg0] = this->size + 1; two(this->size); }
/* script */
stable:::one { @[arg0] = count(); }
