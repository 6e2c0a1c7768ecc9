/*
 * What the server of NFS 3 is asked for and what it answers: args[2] of the provider nfsv3. Types and members have the
 * names of the protocol (RFC 1813). What the kernel puts into a reply after the procedure is done (attributes, entries
 * of directories, data) is not there.
 */

inline int NFS3_OK = 0;
inline int NFS3ERR_PERM = 1;
inline int NFS3ERR_NOENT = 2;
inline int NFS3ERR_IO = 5;
inline int NFS3ERR_NXIO = 6;
inline int NFS3ERR_ACCES = 13;
inline int NFS3ERR_EXIST = 17;
inline int NFS3ERR_XDEV = 18;
inline int NFS3ERR_NODEV = 19;
inline int NFS3ERR_NOTDIR = 20;
inline int NFS3ERR_ISDIR = 21;
inline int NFS3ERR_INVAL = 22;
inline int NFS3ERR_FBIG = 27;
inline int NFS3ERR_NOSPC = 28;
inline int NFS3ERR_ROFS = 30;
inline int NFS3ERR_MLINK = 31;
inline int NFS3ERR_NAMETOOLONG = 63;
inline int NFS3ERR_NOTEMPTY = 66;
inline int NFS3ERR_DQUOT = 69;
inline int NFS3ERR_STALE = 70;
inline int NFS3ERR_BADHANDLE = 10001;
inline int NFS3ERR_NOT_SYNC = 10002;
inline int NFS3ERR_BAD_COOKIE = 10003;
inline int NFS3ERR_NOTSUPP = 10004;
inline int NFS3ERR_TOOSMALL = 10005;
inline int NFS3ERR_SERVERFAULT = 10006;
inline int NFS3ERR_BADTYPE = 10007;
inline int NFS3ERR_JUKEBOX = 10008;

/* How a client wants its writes, and how they were done. */
inline int UNSTABLE = 0;
inline int DATA_SYNC = 1;
inline int FILE_SYNC = 2;

typedef int nfsstat3;

typedef struct nfsv3opinfo {
	string noi_curpath;		/* path of the file or directory, as the server sees it; "<unknown>" */
	cred_t *noi_cred;		/* credentials */
	uint64_t noi_xid;		/* transaction ID */
	string noi_shrpath;		/* path of the export; "<unknown>" */
} nfsv3opinfo_t;

/*
 * The handle that a request is about: in the result, behind the status, where the kernel verifies it; in the arguments
 * for FSSTAT, FSINFO and PATHCONF. LINK has that of the directory first.
 */
inline struct svc_fh *_nfs3_fh[struct svc_rqst *R] = R->rq_proc == 0 ? (struct svc_fh *)NULL :
    R->rq_proc >= 18 && R->rq_proc <= 20 ? &((struct nfsd_fhandle *)R->rq_argp)->fh :
    R->rq_proc == 15 ? &((struct nfsd3_linkres *)R->rq_resp)->fh : &((struct nfsd3_attrstat *)R->rq_resp)->fh;

translator nfsv3opinfo_t < struct _nfs_rqst *R > {
	noi_curpath = _fh_path[_nfs3_fh[_rqst[R]]];
	noi_cred = xlate <cred_t *> (R);
	noi_xid = ntohl(_rqst[R]->rq_xid);
	noi_shrpath = _fh_share[_nfs3_fh[_rqst[R]]];
};

/* Arguments. The first member of all of them is the handle. */
inline struct _nfs_fh *_nfs3_argfh[struct _nfs_rqst *R] = (struct _nfs_fh *)_rqst[R]->rq_argp;

typedef struct GETATTR3args { nfs_fh3 object; } GETATTR3args;
typedef struct READLINK3args { nfs_fh3 symlink; } READLINK3args;
typedef struct FSSTAT3args { nfs_fh3 fsroot; } FSSTAT3args;
typedef struct FSINFO3args { nfs_fh3 fsroot; } FSINFO3args;
typedef struct PATHCONF3args { nfs_fh3 object; } PATHCONF3args;

translator GETATTR3args < struct _nfs_rqst *R > { object = xlate <nfs_fh3> (_nfs3_argfh[R]); };
translator READLINK3args < struct _nfs_rqst *R > { symlink = xlate <nfs_fh3> (_nfs3_argfh[R]); };
translator FSSTAT3args < struct _nfs_rqst *R > { fsroot = xlate <nfs_fh3> (_nfs3_argfh[R]); };
translator FSINFO3args < struct _nfs_rqst *R > { fsroot = xlate <nfs_fh3> (_nfs3_argfh[R]); };
translator PATHCONF3args < struct _nfs_rqst *R > { object = xlate <nfs_fh3> (_nfs3_argfh[R]); };

typedef struct sattr3 {
	uint_t valid;			/* ATTR_* of the kernel: 1 mode, 2 uid, 4 gid, 8 size, 16 atime, 32 mtime */
	uint_t mode;			/* permissions */
	uid_t uid;			/* owner */
	gid_t gid;			/* group */
	uint64_t size;			/* bytes */
} sattr3;

translator sattr3 < struct iattr *A > {
	valid = A->ia_valid;
	mode = A->ia_mode;
	uid = A->ia_uid.val;
	gid = A->ia_gid.val;
	size = A->ia_size;
};

typedef struct SETATTR3args {
	nfs_fh3 object;
	sattr3 new_attributes;
} SETATTR3args;

translator SETATTR3args < struct _nfs_rqst *R > {
	object = xlate <nfs_fh3> (_nfs3_argfh[R]);
	new_attributes = xlate <sattr3> (&((struct nfsd3_sattrargs *)_rqst[R]->rq_argp)->attrs);
};

typedef struct diropargs3 {
	nfs_fh3 dir;			/* the directory */
	string name;			/* the name in it */
} diropargs3;

/* The name follows the handle in arguments of all kinds. */
struct _nfs3_dirop { char first; };
translator diropargs3 < struct _nfs3_dirop *D > {
	dir = xlate <nfs_fh3> ((struct _nfs_fh *)D);
	name = _nfs_name[((struct nfsd3_diropargs *)D)->name, ((struct nfsd3_diropargs *)D)->len];
};
inline struct _nfs3_dirop *_nfs3_dirop[struct _nfs_rqst *R] = (struct _nfs3_dirop *)_rqst[R]->rq_argp;

typedef struct LOOKUP3args { diropargs3 what; } LOOKUP3args;
typedef struct REMOVE3args { diropargs3 object; } REMOVE3args;
typedef struct RMDIR3args { diropargs3 object; } RMDIR3args;
typedef struct CREATE3args { diropargs3 where; } CREATE3args;
typedef struct MKDIR3args { diropargs3 where; } MKDIR3args;
typedef struct MKNOD3args { diropargs3 where; } MKNOD3args;
typedef struct symlinkdata3 { string symlink_data; } symlinkdata3;
typedef struct SYMLINK3args { diropargs3 where; symlinkdata3 symlink; } SYMLINK3args;
typedef struct RENAME3args { diropargs3 from; diropargs3 to; } RENAME3args;
typedef struct LINK3args { nfs_fh3 file; diropargs3 link; } LINK3args;

translator LOOKUP3args < struct _nfs_rqst *R > { what = xlate <diropargs3> (_nfs3_dirop[R]); };
translator REMOVE3args < struct _nfs_rqst *R > { object = xlate <diropargs3> (_nfs3_dirop[R]); };
translator RMDIR3args < struct _nfs_rqst *R > { object = xlate <diropargs3> (_nfs3_dirop[R]); };
translator CREATE3args < struct _nfs_rqst *R > { where = xlate <diropargs3> (_nfs3_dirop[R]); };
translator MKDIR3args < struct _nfs_rqst *R > { where = xlate <diropargs3> (_nfs3_dirop[R]); };
translator MKNOD3args < struct _nfs_rqst *R > { where = xlate <diropargs3> (_nfs3_dirop[R]); };


translator symlinkdata3 < struct _nfs_rqst *R > {
	symlink_data = _nfs_name[(char *)((struct nfsd3_symlinkargs *)_rqst[R]->rq_argp)->first.iov_base,
	    ((struct nfsd3_symlinkargs *)_rqst[R]->rq_argp)->tlen];
};
translator SYMLINK3args < struct _nfs_rqst *R > {
	where = xlate <diropargs3> (_nfs3_dirop[R]);
	symlink = xlate <symlinkdata3> (R);
};
translator RENAME3args < struct _nfs_rqst *R > {
	from = xlate <diropargs3> (_nfs3_dirop[R]);
	to = xlate <diropargs3> ((struct _nfs3_dirop *)&((struct nfsd3_renameargs *)_rqst[R]->rq_argp)->tfh);
};
translator LINK3args < struct _nfs_rqst *R > {
	file = xlate <nfs_fh3> (_nfs3_argfh[R]);
	link = xlate <diropargs3> ((struct _nfs3_dirop *)&((struct nfsd3_linkargs *)_rqst[R]->rq_argp)->tfh);
};

typedef struct ACCESS3args {
	nfs_fh3 object;
	uint32_t access;		/* what is asked for: 1 read, 2 lookup, 4 modify, 8 extend, 16 delete, 32 execute */
} ACCESS3args;

translator ACCESS3args < struct _nfs_rqst *R > {
	object = xlate <nfs_fh3> (_nfs3_argfh[R]);
	access = ((struct nfsd3_accessargs *)_rqst[R]->rq_argp)->access;
};

typedef struct READ3args {
	nfs_fh3 file;
	uint64_t offset;		/* first byte */
	uint32_t count;			/* bytes that are wanted */
} READ3args;

translator READ3args < struct _nfs_rqst *R > {
	file = xlate <nfs_fh3> (_nfs3_argfh[R]);
	offset = ((struct nfsd3_readargs *)_rqst[R]->rq_argp)->offset;
	count = ((struct nfsd3_readargs *)_rqst[R]->rq_argp)->count;
};

typedef struct nfs3data {
	uint_t data_len;		/* bytes */
} nfs3data_t;

typedef struct WRITE3args {
	nfs_fh3 file;
	uint64_t offset;		/* first byte */
	uint32_t count;			/* bytes */
	int stable;			/* UNSTABLE, DATA_SYNC or FILE_SYNC */
	nfs3data_t data;
} WRITE3args;

struct _nfs3_write { char first; };
translator nfs3data_t < struct _nfs3_write *W > { data_len = ((struct nfsd3_writeargs *)W)->len; };
translator WRITE3args < struct _nfs_rqst *R > {
	file = xlate <nfs_fh3> (_nfs3_argfh[R]);
	offset = ((struct nfsd3_writeargs *)_rqst[R]->rq_argp)->offset;
	count = ((struct nfsd3_writeargs *)_rqst[R]->rq_argp)->count;
	stable = ((struct nfsd3_writeargs *)_rqst[R]->rq_argp)->stable;
	data = xlate <nfs3data_t> ((struct _nfs3_write *)_rqst[R]->rq_argp);
};

typedef struct READDIR3args {
	nfs_fh3 dir;
	uint64_t cookie;		/* where to go on; 0: the beginning */
	uint32_t count;			/* bytes of the reply at most */
} READDIR3args;
typedef struct READDIRPLUS3args {
	nfs_fh3 dir;
	uint64_t cookie;		/* where to go on; 0: the beginning */
	uint32_t maxcount;		/* bytes of the reply at most */
} READDIRPLUS3args;

translator READDIR3args < struct _nfs_rqst *R > {
	dir = xlate <nfs_fh3> (_nfs3_argfh[R]);
	cookie = ((struct nfsd3_readdirargs *)_rqst[R]->rq_argp)->cookie;
	count = ((struct nfsd3_readdirargs *)_rqst[R]->rq_argp)->count;
};
translator READDIRPLUS3args < struct _nfs_rqst *R > {
	dir = xlate <nfs_fh3> (_nfs3_argfh[R]);
	cookie = ((struct nfsd3_readdirargs *)_rqst[R]->rq_argp)->cookie;
	maxcount = ((struct nfsd3_readdirargs *)_rqst[R]->rq_argp)->count;
};

typedef struct COMMIT3args {
	nfs_fh3 file;
	uint64_t offset;		/* first byte */
	uint32_t count;			/* bytes; 0: to the end */
} COMMIT3args;

translator COMMIT3args < struct _nfs_rqst *R > {
	file = xlate <nfs_fh3> (_nfs3_argfh[R]);
	offset = ((struct nfsd3_commitargs *)_rqst[R]->rq_argp)->offset;
	count = ((struct nfsd3_commitargs *)_rqst[R]->rq_argp)->count;
};

/* Results. The first member of all of them is the status, as it is sent. */
inline nfsstat3 _nfs3_status[struct _nfs_rqst *R] = ntohl(*(uint32_t *)_rqst[R]->rq_resp);

typedef struct SETATTR3res { nfsstat3 status; } SETATTR3res;
typedef struct LOOKUP3res { nfsstat3 status; } LOOKUP3res;
typedef struct READLINK3res { nfsstat3 status; } READLINK3res;
typedef struct CREATE3res { nfsstat3 status; } CREATE3res;
typedef struct MKDIR3res { nfsstat3 status; } MKDIR3res;
typedef struct SYMLINK3res { nfsstat3 status; } SYMLINK3res;
typedef struct MKNOD3res { nfsstat3 status; } MKNOD3res;
typedef struct REMOVE3res { nfsstat3 status; } REMOVE3res;
typedef struct RMDIR3res { nfsstat3 status; } RMDIR3res;
typedef struct RENAME3res { nfsstat3 status; } RENAME3res;
typedef struct LINK3res { nfsstat3 status; } LINK3res;
typedef struct READDIR3res { nfsstat3 status; } READDIR3res;
typedef struct READDIRPLUS3res { nfsstat3 status; } READDIRPLUS3res;
typedef struct COMMIT3res { nfsstat3 status; } COMMIT3res;

translator SETATTR3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator LOOKUP3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator READLINK3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator CREATE3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator MKDIR3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator SYMLINK3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator MKNOD3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator REMOVE3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator RMDIR3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator RENAME3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator LINK3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator READDIR3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator READDIRPLUS3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };
translator COMMIT3res < struct _nfs_rqst *R > { status = _nfs3_status[R]; };

typedef struct fattr3 {
	uint_t mode;			/* permissions */
	uint_t nlink;			/* links */
	uid_t uid;			/* owner */
	gid_t gid;			/* group */
	uint64_t size;			/* bytes */
	uint64_t used;			/* bytes on the disk */
	uint64_t fileid;		/* inode */
} fattr3;

translator fattr3 < struct kstat *S > {
	mode = S->mode & 07777;
	nlink = S->nlink;
	uid = S->uid.val;
	gid = S->gid.val;
	size = S->size;
	used = S->blocks * 512;
	fileid = S->ino;
};

typedef struct GETATTR3resok {
	fattr3 obj_attributes;
} GETATTR3resok;
typedef struct GETATTR3res_u { GETATTR3resok ok; } GETATTR3res_u;
typedef struct GETATTR3res { nfsstat3 status; GETATTR3res_u res_u; } GETATTR3res;

translator GETATTR3resok < struct _nfs_rqst *R > {
	obj_attributes = xlate <fattr3> (&((struct nfsd3_attrstat *)_rqst[R]->rq_resp)->stat);
};
translator GETATTR3res_u < struct _nfs_rqst *R > { ok = xlate <GETATTR3resok> (R); };
translator GETATTR3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <GETATTR3res_u> (R);
};

typedef struct ACCESS3resok {
	uint32_t access;		/* what is allowed */
} ACCESS3resok;
typedef struct ACCESS3res_u { ACCESS3resok ok; } ACCESS3res_u;
typedef struct ACCESS3res { nfsstat3 status; ACCESS3res_u res_u; } ACCESS3res;

translator ACCESS3resok < struct _nfs_rqst *R > {
	access = _nfs3_status[R] == 0 ? ((struct nfsd3_accessres *)_rqst[R]->rq_resp)->access : 0;
};
translator ACCESS3res_u < struct _nfs_rqst *R > { ok = xlate <ACCESS3resok> (R); };
translator ACCESS3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <ACCESS3res_u> (R);
};

/* What was not read or written has the length that was asked for in the kernel. */
translator nfs3data_t < struct _nfs_rqst *R > {
	data_len = _nfs3_status[R] == 0 ? ((struct nfsd3_readres *)_rqst[R]->rq_resp)->count : 0;
};

typedef struct READ3resok {
	uint32_t count;			/* bytes that were read */
	int eof;			/* 1 at the end of the file */
	nfs3data_t data;
} READ3resok;
typedef struct READ3res_u { READ3resok ok; } READ3res_u;
typedef struct READ3res { nfsstat3 status; READ3res_u res_u; } READ3res;

translator READ3resok < struct _nfs_rqst *R > {
	count = _nfs3_status[R] == 0 ? ((struct nfsd3_readres *)_rqst[R]->rq_resp)->count : 0;
	eof = _nfs3_status[R] == 0 ? ((struct nfsd3_readres *)_rqst[R]->rq_resp)->eof : 0;
	data = xlate <nfs3data_t> (R);
};
translator READ3res_u < struct _nfs_rqst *R > { ok = xlate <READ3resok> (R); };
translator READ3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <READ3res_u> (R);
};

typedef struct WRITE3resok {
	uint32_t count;			/* bytes that were written */
	int committed;			/* UNSTABLE, DATA_SYNC or FILE_SYNC */
} WRITE3resok;
typedef struct WRITE3res_u { WRITE3resok ok; } WRITE3res_u;
typedef struct WRITE3res { nfsstat3 status; WRITE3res_u res_u; } WRITE3res;

translator WRITE3resok < struct _nfs_rqst *R > {
	count = _nfs3_status[R] == 0 ? ((struct nfsd3_writeres *)_rqst[R]->rq_resp)->count : 0;
	committed = _nfs3_status[R] == 0 ? ((struct nfsd3_writeres *)_rqst[R]->rq_resp)->committed : 0;
};
translator WRITE3res_u < struct _nfs_rqst *R > { ok = xlate <WRITE3resok> (R); };
translator WRITE3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <WRITE3res_u> (R);
};

typedef struct FSSTAT3resok {
	uint64_t tbytes;		/* bytes */
	uint64_t fbytes;		/* bytes that are free */
	uint64_t abytes;		/* bytes that are free for users */
	uint64_t tfiles;		/* files */
	uint64_t ffiles;		/* files that are free */
} FSSTAT3resok;
typedef struct FSSTAT3res_u { FSSTAT3resok ok; } FSSTAT3res_u;
typedef struct FSSTAT3res { nfsstat3 status; FSSTAT3res_u res_u; } FSSTAT3res;

translator FSSTAT3resok < struct _nfs_rqst *R > {
	tbytes = ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_blocks *
	    ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_bsize;
	fbytes = ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_bfree *
	    ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_bsize;
	abytes = ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_bavail *
	    ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_bsize;
	tfiles = ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_files;
	ffiles = ((struct nfsd3_fsstatres *)_rqst[R]->rq_resp)->stats.f_ffree;
};
translator FSSTAT3res_u < struct _nfs_rqst *R > { ok = xlate <FSSTAT3resok> (R); };
translator FSSTAT3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <FSSTAT3res_u> (R);
};

typedef struct FSINFO3resok {
	uint32_t rtmax;			/* bytes of a read at most */
	uint32_t wtmax;			/* bytes of a write at most */
	uint64_t maxfilesize;		/* bytes of a file at most */
	uint32_t properties;		/* 1 hard links, 2 symbolic links, 8 one pathconf for all, 16 times can be set */
} FSINFO3resok;
typedef struct FSINFO3res_u { FSINFO3resok ok; } FSINFO3res_u;
typedef struct FSINFO3res { nfsstat3 status; FSINFO3res_u res_u; } FSINFO3res;

translator FSINFO3resok < struct _nfs_rqst *R > {
	rtmax = ((struct nfsd3_fsinfores *)_rqst[R]->rq_resp)->f_rtmax;
	wtmax = ((struct nfsd3_fsinfores *)_rqst[R]->rq_resp)->f_wtmax;
	maxfilesize = ((struct nfsd3_fsinfores *)_rqst[R]->rq_resp)->f_maxfilesize;
	properties = ((struct nfsd3_fsinfores *)_rqst[R]->rq_resp)->f_properties;
};
translator FSINFO3res_u < struct _nfs_rqst *R > { ok = xlate <FSINFO3resok> (R); };
translator FSINFO3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <FSINFO3res_u> (R);
};

typedef struct PATHCONF3resok {
	uint32_t link_max;		/* links of a file at most */
	uint32_t name_max;		/* bytes of a name at most */
} PATHCONF3resok;
typedef struct PATHCONF3res_u { PATHCONF3resok ok; } PATHCONF3res_u;
typedef struct PATHCONF3res { nfsstat3 status; PATHCONF3res_u res_u; } PATHCONF3res;

translator PATHCONF3resok < struct _nfs_rqst *R > {
	link_max = ((struct nfsd3_pathconfres *)_rqst[R]->rq_resp)->p_link_max;
	name_max = ((struct nfsd3_pathconfres *)_rqst[R]->rq_resp)->p_name_max;
};
translator PATHCONF3res_u < struct _nfs_rqst *R > { ok = xlate <PATHCONF3resok> (R); };
translator PATHCONF3res < struct _nfs_rqst *R > {
	status = _nfs3_status[R];
	res_u = xlate <PATHCONF3res_u> (R);
};
