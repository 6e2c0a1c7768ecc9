/*
 * Arrays, and variables of threads and firings.
 *
 * option quiet
 * fire syscall::read:entry pid=1 tid=11 args=3
 * fire syscall::read:entry pid=1 tid=12 args=4
 * fire syscall::read:return pid=1 tid=11 args=100
 * fire syscall::read:return pid=1 tid=12 args=200
 * fire syscall::read:return pid=1 tid=12 args=300
 * fire syscall::close:entry pid=1 tid=11 args=3
 */
syscall::read:entry { self->fd[0] = arg0 + 1; names[arg0] = strjoin("fd ", lltostr(arg0)); this->n = arg0; }
syscall::read:entry { printf("%d %d\n", tid, this->n); }
syscall::read:return /self->fd[0]/ { bytes[self->fd[0] - 1] += arg0; self->fd[0] = 0; }
syscall::close:entry { names[arg0] = 0; }
END { printf("[%d] [%s] %d %d\n", names[3] == NULL, names[4], bytes[3], bytes[4]); }
