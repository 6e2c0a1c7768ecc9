/*
 * What is done to files. Each probe has the file, and a number: the bytes that were read, written or mapped, or 0.
 *
 * A probe without a clause is of an operation that Linux does not have, or that cannot be seen with its file.
 */

provider fsinfo {
	probe access(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe addmap(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe close(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe cmp(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe create(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe delmap(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe dispose(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe dump(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe dumpctl(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe fid(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe frlock(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe fsync(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe getattr(struct path *F, int64_t N : fileinfo_t *F, int64_t N);
	probe getpage(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe getsecattr(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe inactive(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe ioctl(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe link(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe lookup(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe map(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe mkdir(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe open(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe pageio(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe pathconf(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe poll(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe putpage(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe read(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe readdir(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe readlink(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe realvp(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe remove(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe rename(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe rmdir(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe rwlock(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe rwunlock(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe seek(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe setattr(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe setfl(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe setsecattr(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe shrlock(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe space(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe symlink(struct dentry *F, int64_t N : fileinfo_t *F, int64_t N);
	probe vnevent(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
	probe write(struct file *F, int64_t N : fileinfo_t *F, int64_t N);
};

/* Files that this process has open. A file that was only named (O_PATH) is not. */
inline struct file *_open_file[int FD] = curthread->files != NULL && FD >= 0 && FD < curthread->files->fdt->max_fds ?
    curthread->files->fdt->fd[FD] : (struct file *)NULL;
inline int _is_named[struct file *F] = (F->f_flags & 0x200000) != 0;
inline int _is_open[struct file *F] = (F->f_mode & 0x80000) && !_is_named[F];
inline int _is_created[struct file *F] = (F->f_mode & 0x100000) != 0;

/*
 * Where functions can be traced. A file is open, and perhaps created, when the security modules are asked about it. It
 * is closed when nobody has it any more.
 */
fbt:vmlinux:security_file_open:entry /_is_created[args[0]]/ { create(args[0]->f_path.dentry, 0); }
fbt:vmlinux:security_file_open:entry { open(args[0], 0); }
fbt:vmlinux:__fput:entry /_is_open[args[0]]/ { close(args[0], 0); }

fbt:vmlinux:vfs_read:entry { self->read = args[0]; }
fbt:vmlinux:vfs_read:return /self->read != NULL/ { read(self->read, args[1] > 0 ? args[1] : 0); self->read = NULL; }
fbt:vmlinux:vfs_readv:entry { self->readv = args[0]; }
fbt:vmlinux:vfs_readv:return /self->readv != NULL/
{
	read(self->readv, args[1] > 0 ? args[1] : 0);
	self->readv = NULL;
}
fbt:vmlinux:vfs_iter_read:entry { self->iter_read = args[0]; }
fbt:vmlinux:vfs_iter_read:return /self->iter_read != NULL/
{
	read(self->iter_read, args[1] > 0 ? args[1] : 0);
	self->iter_read = NULL;
}
fbt:vmlinux:vfs_write:entry { self->write = args[0]; }
fbt:vmlinux:vfs_write:return /self->write != NULL/
{
	write(self->write, args[1] > 0 ? args[1] : 0);
	self->write = NULL;
}
fbt:vmlinux:vfs_writev:entry { self->writev = args[0]; }
fbt:vmlinux:vfs_writev:return /self->writev != NULL/
{
	write(self->writev, args[1] > 0 ? args[1] : 0);
	self->writev = NULL;
}
fbt:vmlinux:vfs_iter_write:entry { self->iter_write = args[0]; }
fbt:vmlinux:vfs_iter_write:return /self->iter_write != NULL/
{
	write(self->iter_write, args[1] > 0 ? args[1] : 0);
	self->iter_write = NULL;
}
fbt:vmlinux:vfs_fallocate:entry { space(args[0], 0); }
fbt:vmlinux:do_mmap:entry /args[0] != NULL/ { map(args[0], args[2]); addmap(args[0], args[2]); }
fbt:vmlinux:security_inode_getattr:entry { getattr(args[0], 0); }
fbt:vmlinux:notify_change:entry { setattr(args[1], 0); }

/* Names. One that the kernel does not know from before is looked up by the file system. */
fbt:vmlinux:d_alloc_parallel:return /args[1] != NULL && (uintptr_t)args[1] < -4095/ { lookup(args[1], 0); }
fbt:vmlinux:vfs_create:entry { create(defined(struct delegated_inode) ? args[1] : args[2], 0); }
fbt:vmlinux:vfs_mknod:entry { create(args[2], 0); }
fbt:vmlinux:vfs_mkdir:entry { mkdir(args[2], 0); }
fbt:vmlinux:vfs_rmdir:entry { rmdir(args[2], 0); }
fbt:vmlinux:vfs_unlink:entry { remove(args[2], 0); }
fbt:vmlinux:vfs_symlink:entry { symlink(args[2], 0); }
fbt:vmlinux:vfs_link:entry { link(args[0], 0); }
fbt:vmlinux:vfs_rename:entry { rename(args[0]->old_dentry, 0); }
fbt:vmlinux:vfs_readlink:entry { self->link = args[0]; }
fbt:vmlinux:vfs_readlink:return /self->link != NULL/
{
	readlink(self->link, args[1] > 0 ? args[1] : 0);
	self->link = NULL;
}

/* System calls with a descriptor. Where there is no other way, they are all that is seen. */
syscall::ioctl:entry /_open_file[arg0] != NULL/ { ioctl(_open_file[arg0], 0); }
syscall::lseek:entry /_open_file[arg0] != NULL/ { seek(_open_file[arg0], 0); }
syscall::fsync:entry, syscall::fdatasync:entry /_open_file[arg0] != NULL/ { fsync(_open_file[arg0], 0); }
syscall::getdents:entry, syscall::getdents64:entry { self->list = _open_file[arg0]; }
syscall::getdents:return, syscall::getdents64:return /self->list != NULL/
{
	readdir(self->list, errno ? 0 : arg0);
	self->list = NULL;
}

syscall::open:return, syscall::openat:return, syscall::openat2:return, syscall::creat:return
/!defined(fbt:vmlinux:security_file_open:entry) && errno == 0 && _open_file[arg0] != NULL &&
    _is_created[_open_file[arg0]]/
{
	create(_open_file[arg0]->f_path.dentry, 0);
}
syscall::open:return, syscall::openat:return, syscall::openat2:return, syscall::creat:return
/!defined(fbt:vmlinux:security_file_open:entry) && errno == 0 && _open_file[arg0] != NULL &&
    !_is_named[_open_file[arg0]]/
{
	open(_open_file[arg0], 0);
}
syscall::close:entry
/!defined(fbt:vmlinux:__fput:entry) && _open_file[arg0] != NULL && !_is_named[_open_file[arg0]]/
{
	close(_open_file[arg0], 0);
}
syscall::read:entry, syscall::readv:entry, syscall::pread64:entry, syscall::preadv:entry, syscall::preadv2:entry
/!defined(fbt:vmlinux:vfs_read:entry)/
{
	self->reads = _open_file[arg0];
}
syscall::read:return, syscall::readv:return, syscall::pread64:return, syscall::preadv:return, syscall::preadv2:return
/!defined(fbt:vmlinux:vfs_read:entry) && self->reads != NULL/
{
	read(self->reads, errno ? 0 : arg0);
	self->reads = NULL;
}
syscall::write:entry, syscall::writev:entry, syscall::pwrite64:entry, syscall::pwritev:entry, syscall::pwritev2:entry
/!defined(fbt:vmlinux:vfs_write:entry)/
{
	self->writes = _open_file[arg0];
}
syscall::write:return, syscall::writev:return, syscall::pwrite64:return, syscall::pwritev:return,
syscall::pwritev2:return
/!defined(fbt:vmlinux:vfs_write:entry) && self->writes != NULL/
{
	write(self->writes, errno ? 0 : arg0);
	self->writes = NULL;
}
syscall::fallocate:entry /!defined(fbt:vmlinux:vfs_fallocate:entry) && _open_file[arg0] != NULL/
{
	space(_open_file[arg0], 0);
}
syscall::mmap:entry /!defined(fbt:vmlinux:do_mmap:entry) && !(arg3 & 0x20) && _open_file[arg4] != NULL/
{
	map(_open_file[arg4], arg1);
	addmap(_open_file[arg4], arg1);
}
syscall::fstat:entry /!defined(fbt:vmlinux:security_inode_getattr:entry) && _open_file[arg0] != NULL/
{
	getattr(&_open_file[arg0]->f_path, 0);
}
/* The C library's fstat(): AT_EMPTY_PATH (0x1000), and an empty path, which may not be in memory yet. */
syscall::newfstatat:entry
/!defined(fbt:vmlinux:security_inode_getattr:entry) && (arg3 & 0x1000) && _open_file[(int)arg0] != NULL/
{
	getattr(&_open_file[(int)arg0]->f_path, 0);
}
syscall::statx:entry
/!defined(fbt:vmlinux:security_inode_getattr:entry) && (arg2 & 0x1000) && _open_file[(int)arg0] != NULL/
{
	getattr(&_open_file[(int)arg0]->f_path, 0);
}
syscall::fchmod:entry, syscall::fchown:entry, syscall::ftruncate:entry
/!defined(fbt:vmlinux:notify_change:entry) && _open_file[arg0] != NULL/
{
	setattr(_open_file[arg0]->f_path.dentry, 0);
}
