BEGIN { `jiffies = 1; `jiffies++; curthread->pid = 1; curthread->comm[0] = 'x'; *(int *)&`untyped = 2; curthread = 0; `vfs_read = 0; }
