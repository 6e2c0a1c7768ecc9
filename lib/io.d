/*
 * Flags of bufinfo_t.
 */

inline int B_BUSY = 0x1;
inline int B_DONE = 0x2;
inline int B_ERROR = 0x4;
inline int B_PAGEIO = 0x10;
inline int B_PHYS = 0x20;
inline int B_READ = 0x40;
inline int B_WRITE = 0x100;
inline int B_ASYNC = 0x400;

/*
 * Open files.
 */

typedef long long offset_t;

typedef struct fileinfo {
	string fi_name;			/* last component of the path */
	string fi_dirname;		/* path without the last component */
	string fi_pathname;		/* path as the process sees it */
	offset_t fi_offset;		/* offset of the next read or write */
	string fi_fs;			/* file system */
	string fi_mount;		/* mount point of the file system */
	int fi_oflags;			/* O_* flags of open */
} fileinfo_t;

/* Pipes, sockets and similar files have no path. Their name is the one that /proc shows. */
inline int _has_path[struct path *P] = P->dentry != P->dentry->d_parent || P->dentry == P->mnt->mnt_root;

inline string _numbered[string NAME, struct inode *I] = strjoin(NAME, strjoin(":[", strjoin(lltostr(I->i_ino), "]")));

inline string _other_name[struct dentry *D, string FS] = FS == "pipefs" ? _numbered["pipe", D->d_inode] :
    FS == "sockfs" ? _numbered["socket", D->d_inode] :
    FS == "anon_inodefs" ? strjoin("anon_inode:", stringof(D->d_name.name)) : _numbered[FS, D->d_inode];

inline string _pathname[struct file *F] = _has_path[&F->f_path] ? d_path(&F->f_path) :
    _other_name[F->f_path.dentry, stringof(F->f_inode->i_sb->s_type->name)];

/* The dentry of the root of a mount, or of the process, does not have the name under which the process sees it. */
inline string _last_name[struct path *P] =
    P->dentry == P->mnt->mnt_root || P->dentry == curthread->fs->root.dentry ? basename(d_path(P)) :
    stringof(P->dentry->d_name.name);

translator fileinfo_t < struct file *F > {
	fi_name = F == NULL ? "<none>" : _has_path[&F->f_path] ? _last_name[&F->f_path] : _pathname[F];
	fi_dirname = F == NULL ? "<none>" : _has_path[&F->f_path] ? dirname(d_path(&F->f_path)) : "<unknown>";
	fi_pathname = F == NULL ? "<none>" : _pathname[F];
	fi_offset = F == NULL ? 0 : F->f_pos;
	fi_fs = F == NULL ? "<none>" : stringof(F->f_inode->i_sb->s_type->name);
	fi_mount = F == NULL ? "<none>" : _has_path[&F->f_path] ? _mountpoint(&F->f_path) : "<unknown>";
	fi_oflags = F == NULL ? 0 : F->f_flags;
};

inline fileinfo_t fds[int FD] = xlate <fileinfo_t> (curthread->files != NULL && FD >= 0 &&
    FD < curthread->files->fdt->max_fds ? curthread->files->fdt->fd[FD] : NULL);

#pragma D attributes Stable/Stable/Common fds
