/*
 * Block I/O: requests, devices and files, from the kernel's struct bio (what is submitted) and struct request (what a
 * driver is given). Every member is an expression over these structs. It is compiled only if a script uses it,
 * against the types of the running kernel.
 */

inline int B_BUSY = 0x1;
inline int B_DONE = 0x2;
inline int B_ERROR = 0x4;
inline int B_PAGEIO = 0x10;
inline int B_PHYS = 0x20;
inline int B_READ = 0x40;
inline int B_WRITE = 0x100;
inline int B_ASYNC = 0x400;

typedef struct bufinfo {
	int b_flags;			/* B_READ or B_WRITE; B_ASYNC, B_PAGEIO, B_PHYS, B_ERROR */
	size_t b_bcount;		/* bytes; 0 in a bio that is complete */
	caddr_t b_addr;			/* address of the bio or request: the memory is pages */
	uint64_t b_lblkno;		/* the same as b_blkno */
	uint64_t b_blkno;		/* first block on b_edev, in blocks of 512 bytes */
	size_t b_resid;			/* 0 */
	size_t b_bufsize;		/* the same as b_bcount */
	caddr_t b_iodone;		/* function that the kernel calls on completion */
	int b_error;			/* error number of a bio that is complete */
	dev_t b_edev;			/* device number */
} bufinfo_t;

typedef struct devinfo {
	int dev_major;			/* major number */
	int dev_minor;			/* minor number */
	int dev_instance;		/* 0 */
	string dev_name;		/* driver */
	string dev_statname;		/* disk or partition, as in /proc/partitions */
	string dev_pathname;		/* its path in /dev */
} devinfo_t;

/* The operation is in the low byte. Operations that change the device are odd, except a flush. */
inline int _io_op[uint_t OPF] = OPF & 0xff;
inline int _io_direction[uint_t OPF] = OPF & 1 || _io_op[OPF] == REQ_OP_FLUSH ? B_WRITE : B_READ;

/* As op_is_sync() of the kernel. Nobody waits for a read ahead. */
inline int _io_async[uint_t OPF] = _io_op[OPF] == REQ_OP_READ ? (OPF & 1 << __REQ_RAHEAD ? B_ASYNC : 0) :
    (OPF & (1 << __REQ_SYNC | 1 << __REQ_FUA | 1 << __REQ_PREFLUSH) ? 0 : B_ASYNC);

/* These operations have a size, and no memory. */
inline int _io_has_pages[uint_t OPF] = _io_op[OPF] == REQ_OP_READ || _io_op[OPF] == REQ_OP_WRITE ||
    _io_op[OPF] == REQ_OP_ZONE_APPEND;

/* The memory that is next. A bio that is complete has advanced to its end, and begins at the first again. */
inline struct bio_vec *_io_vec[struct bio *B] = !_io_has_pages[B->bi_opf] || B->bi_io_vec == NULL ||
    (B->bi_iter.bi_size == 0 && B->bi_vcnt == 0) ? (struct bio_vec *)NULL :
    B->bi_io_vec + (B->bi_iter.bi_size == 0 ? 0 : B->bi_iter.bi_idx);

/*
 * The folio of a page. The word of a page that is not the first has bit 0 and the address of the first page, or a mask
 * for the address of the page.
 */
inline uintptr_t _first_page[uintptr_t P, uintptr_t INFO] =
    (INFO & 1) == 0 ? P : ~INFO >> 40 == 0 ? P & INFO : INFO - 1;
inline struct folio *_folio[struct page *P] = (struct folio *)_first_page[(uintptr_t)P,
    defined(struct page, compound_info) ? P->compound_info : P->compound_head];

inline ulong_t _page_flags[struct page *P] = defined(struct page, flags.f) ? P->flags.f : P->flags;

/* Pages of the allocator and of similar owners use the word `mapping` for something else. */
inline int _page_is_typed[struct page *P] = defined(enum pagetype) ?
    P->page_type >= 0xf0000000 && P->page_type < 0xff000000 : (_page_flags[P] & 1 << PG_slab) != 0;

/* 0 for memory of the kernel; bit 0 for memory of a process that is of no file. */
inline uintptr_t _page_mapping[struct page *P] = _page_is_typed[P] ? 0 : (uintptr_t)P->mapping;

/*
 * The cache locks a page while it is read and marks it while it is written. Other memory of processes that is in a
 * request is the buffer of direct I/O.
 */
inline int _page_in_cache_io[struct page *P] = (_page_flags[P] & (1 << PG_locked | 1 << PG_writeback)) != 0;

inline int _page_io_flags[struct page *P] = _page_mapping[P] == 0 ? 0 : _page_in_cache_io[P] ? B_PAGEIO : B_PHYS;

inline int _vec_flags[struct bio_vec *V] = V == NULL ? 0 : _page_io_flags[(struct page *)_folio[V->bv_page]];

/* Error numbers of blk_status_t. */
inline int _io_errno[int STATUS] = STATUS == 0 ? 0 : STATUS == 1 ? EOPNOTSUPP : STATUS == 2 ? ETIMEDOUT :
    STATUS == 3 ? ENOSPC : STATUS == 4 ? ENOLINK : STATUS == 5 ? EREMOTEIO : STATUS == 6 ? EBADE :
    STATUS == 7 ? ENODATA : STATUS == 8 ? EILSEQ : STATUS == 9 ? ENOMEM : STATUS == 12 ? EAGAIN :
    STATUS == 13 ? EBUSY : EIO;

/* The block layer turns the block of a partition into that of its disk, and says so in the bio. */
inline uint64_t _bio_block[struct bio *B] = B->bi_iter.bi_sector -
    (B->bi_bdev != NULL && B->bi_flags & 1 << BIO_REMAPPED ? B->bi_bdev->bd_start_sect : 0);

inline dev_t _bdev_dev[struct block_device *D] = D == NULL ? 0 : D->bd_dev;

/* A request is for a partition or a disk. A request that is none of a disk has neither. */
inline struct block_device *_request_bdev[struct request *R] = R->part != NULL ? R->part :
    R->q->disk == NULL ? (struct block_device *)NULL : R->q->disk->part0;

translator bufinfo_t < struct bio *B > {
	b_flags = _io_direction[B->bi_opf] | _io_async[B->bi_opf] | _vec_flags[_io_vec[B]] |
	    (B->bi_status != 0 ? B_ERROR : 0);
	b_bcount = B->bi_iter.bi_size;
	b_addr = (caddr_t)B;
	b_lblkno = _bio_block[B];
	b_blkno = _bio_block[B];
	b_resid = 0;
	b_bufsize = B->bi_iter.bi_size;
	b_iodone = (caddr_t)B->bi_end_io;
	b_error = _io_errno[B->bi_status];
	b_edev = _bdev_dev[B->bi_bdev];
};

/* A flush has no place. */
inline uint64_t _request_block[struct request *R] = _io_op[R->cmd_flags] == REQ_OP_FLUSH ? 0 :
    R->__sector - (R->part == NULL ? 0 : R->part->bd_start_sect);

translator bufinfo_t < struct request *R > {
	b_flags = _io_direction[R->cmd_flags] | _io_async[R->cmd_flags] |
	    (R->bio == NULL ? 0 : _vec_flags[_io_vec[R->bio]]);
	b_bcount = R->__data_len;
	b_addr = (caddr_t)R;
	b_lblkno = _request_block[R];
	b_blkno = _request_block[R];
	b_resid = 0;
	b_bufsize = R->__data_len;
	b_iodone = (caddr_t)R->end_io;
	b_error = 0;
	b_edev = _bdev_dev[_request_bdev[R]];
};

inline int _partition[struct block_device *D] =
    defined(struct block_device, bd_partno) ? D->bd_partno : D->__bd_flags.counter & 0xff;

/* Where the name of a disk ends in a digit, a letter is between it and the number of a partition. */
inline int _is_digit[char C] = C >= '0' && C <= '9';
inline string _part_separator[struct gendisk *G] =
    _is_digit[G->disk_name[strlen(stringof(G->disk_name)) - 1]] ? "p" : "";

inline string _disk_part[struct gendisk *G, int N] = N == 0 ? stringof(G->disk_name) :
    strjoin(stringof(G->disk_name), strjoin(_part_separator[G], lltostr(N)));

inline string _statname[struct block_device *D] = D == NULL ? "<none>" : _disk_part[D->bd_disk, _partition[D]];

/*
 * The driver of a disk is that of the device it belongs to, or of the next one above. A disk that belongs to none is
 * named by the module of its driver. A driver that is no module is known by its major number.
 */
inline string _major_name[struct gendisk *G] = G->major == 1 ? "brd" : G->major == 7 ? "loop" : G->major == 9 ? "md" :
    G->major == 43 ? "nbd" : stringof(G->disk_name);
inline string _module_name[struct gendisk *G] =
    G->fops->owner == NULL ? _major_name[G] : stringof(G->fops->owner->name);
inline struct device *_with_driver[struct device *D] = D == NULL || D->driver != NULL ? D :
    D->parent == NULL || D->parent->driver != NULL ? D->parent : D->parent->parent;
inline string _driver_name[struct device *D, struct gendisk *G] =
    D == NULL || D->driver == NULL ? _module_name[G] : stringof(D->driver->name);
inline string _disk_driver[struct gendisk *G] = _driver_name[_with_driver[G->part0->bd_device.parent], G];

translator devinfo_t < struct block_device *D > {
	dev_major = _bdev_dev[D] >> 20;
	dev_minor = _bdev_dev[D] & 0xfffff;
	dev_instance = 0;
	dev_name = D == NULL ? "<none>" : _disk_driver[D->bd_disk];
	dev_statname = _statname[D];
	dev_pathname = D == NULL ? "<none>" : strjoin("/dev/", _statname[D]);
};

translator devinfo_t < struct bio *B > {
	dev_major = xlate <devinfo_t> (B->bi_bdev).dev_major;
	dev_minor = xlate <devinfo_t> (B->bi_bdev).dev_minor;
	dev_instance = 0;
	dev_name = xlate <devinfo_t> (B->bi_bdev).dev_name;
	dev_statname = xlate <devinfo_t> (B->bi_bdev).dev_statname;
	dev_pathname = xlate <devinfo_t> (B->bi_bdev).dev_pathname;
};

translator devinfo_t < struct request *R > {
	dev_major = xlate <devinfo_t> (_request_bdev[R]).dev_major;
	dev_minor = xlate <devinfo_t> (_request_bdev[R]).dev_minor;
	dev_instance = 0;
	dev_name = xlate <devinfo_t> (_request_bdev[R]).dev_name;
	dev_statname = xlate <devinfo_t> (_request_bdev[R]).dev_statname;
	dev_pathname = xlate <devinfo_t> (_request_bdev[R]).dev_pathname;
};

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

/*
 * Pipes, sockets and similar files have no path. Their name is the one that /proc shows: that of their kind for the file
 * systems of the kernel, otherwise the name that they were made with (memfd_create()). As for files that were removed,
 * " (deleted)" is no part of the name.
 */
inline int _has_path[struct path *P] = P->dentry != P->dentry->d_parent || P->dentry == P->mnt->mnt_root;

inline int _names_kinds[string FS] = FS == "pipefs" || FS == "sockfs" || FS == "anon_inodefs" || FS == "nsfs" ||
    FS == "pidfs";

inline string _numbered[string NAME, struct inode *I] = strjoin(NAME, strjoin(":[", strjoin(lltostr(I->i_ino), "]")));

inline string _other_name[struct dentry *D, string FS] = FS == "pipefs" ? _numbered["pipe", D->d_inode] :
    FS == "sockfs" ? _numbered["socket", D->d_inode] :
    FS == "anon_inodefs" ? strjoin("anon_inode:", stringof(D->d_name.name)) :
    FS == "nsfs" ? _numbered[stringof(((struct ns_common *)D->d_inode->i_private)->ops->name), D->d_inode] :
    FS == "pidfs" ? "anon_inode:[pidfd]" : stringof(D->d_name.name);

inline string _fs[struct file *F] = stringof(F->f_inode->i_sb->s_type->name);

inline string _pathname[struct file *F] = _has_path[&F->f_path] ? d_path(&F->f_path) :
    strjoin(_names_kinds[_fs[F]] ? "" : "/", _other_name[F->f_path.dentry, _fs[F]]);

/* The dentry of the root of a mount, or of the process, does not have the name under which the process sees it. */
inline string _last_name[struct path *P] =
    P->dentry == P->mnt->mnt_root || P->dentry == curthread->fs->root.dentry ? basename(d_path(P)) :
    stringof(P->dentry->d_name.name);

translator fileinfo_t < struct file *F > {
	fi_name = F == NULL ? "<none>" : _has_path[&F->f_path] ? _last_name[&F->f_path] :
	    _other_name[F->f_path.dentry, _fs[F]];
	fi_dirname = F == NULL ? "<none>" : _has_path[&F->f_path] ? dirname(d_path(&F->f_path)) : "<unknown>";
	fi_pathname = F == NULL ? "<none>" : _pathname[F];
	fi_offset = F == NULL ? 0 : F->f_pos;
	fi_fs = F == NULL ? "<none>" : _fs[F];
	fi_mount = F == NULL ? "<none>" : _has_path[&F->f_path] ? _mountpoint(&F->f_path) : "<unknown>";
	fi_oflags = F == NULL ? 0 : F->f_flags;
};

inline fileinfo_t fds[int FD] = xlate <fileinfo_t> (curthread->files != NULL && FD >= 0 &&
    FD < curthread->files->fdt->max_fds ? curthread->files->fdt->fd[FD] : NULL);

#pragma D attributes Stable/Stable/Common fds

/*
 * Files of requests. The first page of a request leads to a file if it is of the cache: the page to the inode, the
 * inode to one of its names. Pages of devices, of a journal and of processes lead to none.
 */

/* The inode of a page. Bit 0 of its mapping is set for memory that is of no file, bit 1 for a page that moves. */
inline struct inode *_page_inode[struct page *P] =
    _page_mapping[P] == 0 || _page_mapping[P] & 3 || !_page_in_cache_io[P] ? (struct inode *)NULL : P->mapping->host;

inline struct inode *_vec_inode[struct bio_vec *V] =
    V == NULL ? (struct inode *)NULL : _page_inode[(struct page *)_folio[V->bv_page]];

inline struct dentry *_inode_name[struct inode *I] =
    I == NULL || I->i_dentry.first == NULL ? (struct dentry *)NULL : (struct dentry *)((uintptr_t)I->i_dentry.first -
    (defined(struct dentry, d_u) ? offsetof(struct dentry, d_u) : offsetof(struct dentry, d_alias)));

inline struct dentry *_bio_file[struct bio *B] = _inode_name[_vec_inode[_io_vec[B]]];

/* The place of the first byte in the file. */
inline uint64_t _vec_offset[struct folio *F, struct bio_vec *V] =
    (F->index + (V->bv_page - (struct page *)F)) * _pagesize + V->bv_offset;
inline uint64_t _bio_offset[struct bio *B] =
    B->bi_iter.bi_bvec_done + _vec_offset[_folio[_io_vec[B]->bv_page], _io_vec[B]];

/*
 * A mount of a file system that shows it from its root: that of the process, else one of the first three that are
 * mounted, else the first.
 */
inline struct mount *_mount_in_list[struct super_block *S, struct list_head *L] =
    L == &S->s_mounts ? (struct mount *)NULL : (struct mount *)((uintptr_t)L - offsetof(struct mount, mnt_instance));
inline struct mount *_first_mount[struct super_block *S] =
    defined(struct super_block, s_mounts.next) ? _mount_in_list[S, S->s_mounts.next] : S->s_mounts;
inline struct mount *_next_mount[struct super_block *S, struct mount *M] = M == NULL ? (struct mount *)NULL :
    defined(struct super_block, s_mounts.next) ? _mount_in_list[S, M->mnt_instance.next] : M->mnt_next_for_sb;
inline int _shows_root[struct super_block *S, struct mount *M] = M != NULL && M->mnt.mnt_root == S->s_root;
inline int _is_attached[struct super_block *S, struct mount *M] = _shows_root[S, M] && M->mnt_parent != M;
inline struct mount *_mount_from_third[struct super_block *S, struct mount *M1, struct mount *M3] =
    _is_attached[S, M3] ? M3 : _shows_root[S, M1] ? M1 : (struct mount *)NULL;
inline struct mount *_mount_from_second[struct super_block *S, struct mount *M1, struct mount *M2] =
    _is_attached[S, M2] ? M2 : _mount_from_third[S, M1, _next_mount[S, M2]];
inline struct mount *_some_mount[struct super_block *S, struct mount *M1] =
    _is_attached[S, M1] ? M1 : _mount_from_second[S, M1, _next_mount[S, M1]];
inline int _shown_by[struct super_block *S, struct vfsmount *V] = V->mnt_sb == S && V->mnt_root == S->s_root;
inline struct vfsmount *_mount_of[struct super_block *S] =
    curthread->fs != NULL && _shown_by[S, curthread->fs->root.mnt] ? curthread->fs->root.mnt :
    _some_mount[S, _first_mount[S]] == NULL ? (struct vfsmount *)NULL : &_some_mount[S, _first_mount[S]]->mnt;

inline string _path_under[struct dentry *D, struct vfsmount *M] = M == NULL ? "<unknown>" : _dentrypath(D, M);
inline string _path_of[struct dentry *D] = D == NULL ? "<unknown>" : _path_under[D, _mount_of[D->d_sb]];
inline string _mount_path[struct vfsmount *M] = M == NULL ? "<unknown>" : _dentrypath(M->mnt_root, M);

translator fileinfo_t < struct bio *B > {
	fi_name = _bio_file[B] == NULL ? "<unknown>" : stringof(_bio_file[B]->d_name.name);
	fi_dirname = _bio_file[B] == NULL ? "<unknown>" : dirname(_path_of[_bio_file[B]]);
	fi_pathname = _path_of[_bio_file[B]];
	fi_offset = _bio_file[B] == NULL ? _bio_block[B] * 512 : _bio_offset[B];
	fi_fs = _bio_file[B] == NULL ? "<unknown>" : stringof(_bio_file[B]->d_sb->s_type->name);
	fi_mount = _bio_file[B] == NULL ? "<unknown>" : _mount_path[_mount_of[_bio_file[B]->d_sb]];
	fi_oflags = 0;
};

translator fileinfo_t < struct request *R > {
	fi_name = R->bio == NULL ? "<unknown>" : xlate <fileinfo_t> (R->bio).fi_name;
	fi_dirname = R->bio == NULL ? "<unknown>" : xlate <fileinfo_t> (R->bio).fi_dirname;
	fi_pathname = R->bio == NULL ? "<unknown>" : xlate <fileinfo_t> (R->bio).fi_pathname;
	fi_offset = R->bio == NULL ? _request_block[R] * 512 : xlate <fileinfo_t> (R->bio).fi_offset;
	fi_fs = R->bio == NULL ? "<unknown>" : xlate <fileinfo_t> (R->bio).fi_fs;
	fi_mount = R->bio == NULL ? "<unknown>" : xlate <fileinfo_t> (R->bio).fi_mount;
	fi_oflags = 0;
};

/* A file by its place. */
translator fileinfo_t < struct path *P > {
	fi_name = _has_path[P] ? _last_name[P] : _other_name[P->dentry, stringof(P->dentry->d_sb->s_type->name)];
	fi_dirname = _has_path[P] ? dirname(d_path(P)) : "<unknown>";
	fi_pathname = _has_path[P] ? d_path(P) :
	    strjoin(_names_kinds[stringof(P->dentry->d_sb->s_type->name)] ? "" : "/",
	    _other_name[P->dentry, stringof(P->dentry->d_sb->s_type->name)]);
	fi_offset = 0;
	fi_fs = stringof(P->dentry->d_sb->s_type->name);
	fi_mount = _has_path[P] ? _mountpoint(P) : "<unknown>";
	fi_oflags = 0;
};

/* A name in a directory. The file need not exist. */
translator fileinfo_t < struct dentry *D > {
	fi_name = stringof(D->d_name.name);
	fi_dirname = dirname(_path_of[D]);
	fi_pathname = _path_of[D];
	fi_offset = 0;
	fi_fs = stringof(D->d_sb->s_type->name);
	fi_mount = _mount_path[_mount_of[D->d_sb]];
	fi_oflags = 0;
};

/*
 * The provider. A bio that is complete has advanced to its end and has no size any more. The base fires before that,
 * where size and place can be read from the bio. Otherwise both are kept, by its address.
 */

struct _io_done {
	struct bio *bio;
	struct block_device *device;
	size_t bytes;
	uint64_t block;
	int status;
};

translator bufinfo_t < struct _io_done *D > {
	b_flags = xlate <bufinfo_t> (D->bio).b_flags | (D->status != 0 ? B_ERROR : 0);
	b_bcount = D->bytes;
	b_addr = (caddr_t)D->bio;
	b_lblkno = D->block;
	b_blkno = D->block;
	b_resid = 0;
	b_bufsize = D->bytes;
	b_iodone = (caddr_t)D->bio->bi_end_io;
	b_error = _io_errno[D->status];
	b_edev = _bdev_dev[D->device];
};

/*
 * The bio is the first argument of each probe: scripts find the start of a request by arg0. In flight it is of one
 * request.
 */
provider io {
	probe start(struct bio *B : bufinfo_t *B, devinfo_t *B, fileinfo_t *B);
	probe done(struct bio *B, struct _io_done *D, struct block_device *DEVICE :
	    bufinfo_t *D, devinfo_t *DEVICE, fileinfo_t *B);
	probe wait__start(struct bio *B : bufinfo_t *B, devinfo_t *B, fileinfo_t *B);
	probe wait__done(struct bio *B, struct _io_done *D, struct block_device *DEVICE :
	    bufinfo_t *D, devinfo_t *DEVICE, fileinfo_t *B);
};

#pragma D attributes Evolving/Evolving/ISA provider io provider
#pragma D attributes Private/Private/Unknown provider io module
#pragma D attributes Private/Private/Unknown provider io function
#pragma D attributes Evolving/Evolving/ISA provider io name
#pragma D attributes Evolving/Evolving/ISA provider io args

this struct _io_done done;
this struct bio *bio;
this uint64_t size;
this int others;
this int over;

uint64_t bytes[struct bio *];
uint64_t block[struct bio *];
struct block_device *device[struct bio *];
int64_t parts[struct bio *];

rawtp:block::block_bio_queue { start(args[0]); }

/*
 * A bio is complete when its request is, or when a driver without requests says so (block_bio_complete). A bio that
 * was split, and one of a chain (a long discard), waits for its parts: bios that end with bio_chain_endio and have it in
 * bi_private. It is complete when the last of these and itself have ended.
 *
 * The kernel counts what has not ended (__bi_remaining) down after the tracepoints, so two parts that end at once on
 * two CPUs both find 2 there. So the library counts itself, atomically: 1 up for each part, before the part is
 * submitted, and 1 down for each part and for the bio itself, in whatever order. The one that counts to -1 is the last.
 * Its size is kept before the first part or the bio itself can count.
 *
 * The kernel marks a bio that it passed to block_bio_queue, until its request ends, or until it has passed it to
 * block_bio_complete, which is when its own count is 0.
 */
inline int _bio_is_traced[struct bio *B] = (B->bi_flags & 1 << BIO_TRACE_COMPLETION) != 0;
inline int _bio_has_parts[struct bio *B] = (B->bi_flags & 1 << BIO_CHAIN) != 0;
inline int _bio_is_part[struct bio *B] = (uintptr_t)B->bi_end_io == (uintptr_t)&`bio_chain_endio;
inline struct bio *_bio_whole[struct bio *B] = _bio_is_part[B] ? (struct bio *)B->bi_private : (struct bio *)NULL;

/* What was split off is no request of its own. It has the mark of the whole. In a chain, a part is one. */
inline int _bio_is_split_off[struct bio *B] = _bio_is_part[B] && (B->bi_flags & 1 << BIO_CLONED) != 0;

/* A bio of size 0 (a flush) is kept too. */
inline uint64_t _bio_size[struct bio *B] = (uint64_t)B->bi_iter.bi_size + 1;

/*
 * A driver without requests may advance the bio before it is complete, and pass it on to a device below (md, the paths
 * of NVMe). It is done on the device on which it started.
 */
rawtp:block::block_bio_queue /args[0]->bi_bdev->bd_disk->fops->submit_bio != NULL/
{
	bytes[args[0]] = _bio_size[args[0]];
	block[args[0]] = _bio_block[args[0]];
	device[args[0]] = args[0]->bi_bdev;
}

/* In a chain, a part is submitted before the whole. */
rawtp:block::block_bio_queue /_bio_is_part[args[0]]/ { parts[_bio_whole[args[0]]]++; }

/*
 * What is split off is the beginning. It has advanced the whole, and is not submitted as a bio of its own. The first
 * split sets the number of parts, to what the kernel counts beside the whole.
 *
 * Without functions, the tracepoint of a split. Device mapper tells it the bio itself, and ends it with
 * block_bio_complete. Before Linux 6.14 md tells it nothing.
 */
fbt::bio_chain:entry
{
	this->bio = _bio_is_traced[args[0]] ? args[1] : (struct bio *)NULL;
	this->size = this->bio != NULL ? bytes[this->bio] : 0;
	this->others = this->bio != NULL && _bio_has_parts[this->bio] ? this->bio->__bi_remaining.counter : 1;
}
rawtp:block::block_split /!defined(fbt::bio_chain:entry)/
{
	this->bio = _bio_is_split_off[args[0]] ? _bio_whole[args[0]] : (struct bio *)NULL;
	this->size = this->bio != NULL ? bytes[this->bio] : 0;
	this->others = this->bio != NULL ? this->bio->__bi_remaining.counter - 1 : 0;
}
fbt::bio_chain:entry, rawtp:block::block_split /this->bio != NULL && this->size/ { parts[this->bio]++; }
fbt::bio_chain:entry, rawtp:block::block_split /this->bio != NULL && !this->size/
{
	bytes[this->bio] = _bio_size[this->bio] + args[0]->bi_iter.bi_size;
	block[this->bio] = _bio_block[args[0]];
	parts[this->bio] = this->others;
}

/*
 * The data of a request with a flush is complete before its bios end, with the flush. A driver may complete a request in
 * steps. The flag has a number of its own since Linux 6.12. Only 6.11 has the member and not the number: whether there is
 * a symbol takes longer to know.
 */
inline int _flush_sequence =
    defined(struct queue_limits, features) ? (defined(`__RQF_FLUSH_SEQ) ? 1 << __RQF_FLUSH_SEQ : 1 << 4) : 1 << 4;

bio:block::complete
{
	this->bio = args[0];
	this->size = bytes[args[0]];
	this->over = !(args[1]->rq_flags & _flush_sequence) && args[3] == args[0]->bi_iter.bi_size;
}
bio:block::complete /!this->size && _bio_is_traced[this->bio] && (!this->over || _bio_has_parts[this->bio])/
{
	this->size = _bio_size[this->bio];
	bytes[this->bio] = this->size;
	block[this->bio] = _bio_block[this->bio];
}
bio:block::complete /this->over && _bio_has_parts[this->bio]/ { this->over = --parts[this->bio] == -1; }
bio:block::complete
/this->over && (this->size || _bio_is_traced[this->bio]) && !_bio_is_split_off[this->bio]/
{
	this->done.bio = this->bio;
	this->done.bytes = this->size ? this->size - 1 : this->bio->bi_iter.bi_size;
	this->done.block = this->size ? block[this->bio] : _bio_block[this->bio];
	this->done.device = this->size ? device[this->bio] : NULL;
	this->done.device = this->done.device != NULL ? this->done.device : this->bio->bi_bdev;
	this->done.status = args[2] != 0 ? args[2] : this->bio->bi_status;
	done(this->bio, &this->done, this->done.device);
}

rawtp:block::block_bio_complete
{
	this->bio = args[1];
	this->size = bytes[args[1]];
	this->over = 1;
}
rawtp:block::block_bio_complete /!_bio_is_split_off[this->bio]/
{
	this->done.bio = this->bio;
	this->done.bytes = this->size ? this->size - 1 : this->bio->bi_iter.bi_size;
	this->done.block = this->size ? block[this->bio] : _bio_block[this->bio];
	this->done.device = this->size ? device[this->bio] : NULL;
	this->done.device = this->done.device != NULL ? this->done.device : this->bio->bi_bdev;
	this->done.status = this->bio->bi_status;
	done(this->bio, &this->done, this->done.device);
}

bio:block::complete, rawtp:block::block_bio_complete /this->over && this->size/
{
	bytes[this->bio] = 0;
	block[this->bio] = 0;
	device[this->bio] = 0;
}
bio:block::complete, rawtp:block::block_bio_complete /this->over && _bio_has_parts[this->bio]/
{
	parts[this->bio] = 0;
}

/* The whole of a part that has ended. If block_bio_complete will tell it, it does not count itself, nor to -1. */
bio:block::complete, rawtp:block::block_bio_complete
{
	this->bio = this->over ? _bio_whole[this->bio] : (struct bio *)NULL;
	this->over = this->bio != NULL && (bytes[this->bio] || parts[this->bio]) && --parts[this->bio] == -1;
}
bio:block::complete, rawtp:block::block_bio_complete /this->over && !_bio_is_split_off[this->bio]/
{
	this->done.bio = this->bio;
	this->done.bytes = bytes[this->bio] - 1;
	this->done.block = block[this->bio];
	this->done.device = device[this->bio] != NULL ? device[this->bio] : this->bio->bi_bdev;
	this->done.status = this->bio->bi_status != 0 ? this->bio->bi_status : this->done.status;
	done(this->bio, &this->done, this->done.device);
}
bio:block::complete, rawtp:block::block_bio_complete /this->over/
{
	bytes[this->bio] = 0;
	block[this->bio] = 0;
	device[this->bio] = 0;
	parts[this->bio] = 0;
}

/* Its own whole. More than two that end at once with one part are not followed. */
bio:block::complete, rawtp:block::block_bio_complete
{
	this->bio = this->over ? _bio_whole[this->bio] : (struct bio *)NULL;
	this->over = this->bio != NULL && (bytes[this->bio] || parts[this->bio]) && --parts[this->bio] == -1;
}
bio:block::complete, rawtp:block::block_bio_complete /this->over && !_bio_is_split_off[this->bio]/
{
	this->done.bio = this->bio;
	this->done.bytes = bytes[this->bio] - 1;
	this->done.block = block[this->bio];
	this->done.device = device[this->bio] != NULL ? device[this->bio] : this->bio->bi_bdev;
	this->done.status = this->bio->bi_status != 0 ? this->bio->bi_status : this->done.status;
	done(this->bio, &this->done, this->done.device);
}
bio:block::complete, rawtp:block::block_bio_complete /this->over/
{
	bytes[this->bio] = 0;
	block[this->bio] = 0;
	device[this->bio] = 0;
	parts[this->bio] = 0;
}

fbt::submit_bio_wait:entry
{
	self->waits = args[0];
	self->bytes = args[0]->bi_iter.bi_size;
	self->block = _bio_block[args[0]];
	self->device = args[0]->bi_bdev;
	wait__start(args[0]);
}

fbt::submit_bio_wait:return /self->waits != NULL/
{
	this->done.bio = self->waits;
	this->done.bytes = self->bytes;
	this->done.block = self->block;
	this->done.device = self->device;
	this->done.status = self->waits->bi_status;
	wait__done(self->waits, &this->done, self->device);
	self->waits = NULL;
	self->bytes = 0;
	self->block = 0;
	self->device = NULL;
}
