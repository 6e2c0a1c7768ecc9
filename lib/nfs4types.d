/*
 * What the server of NFS 4 is asked for and what it answers: args[2] of the provider nfsv4. Types and members have the
 * names of the protocol (RFC 7530, 8881, 7862). What the kernel has in no struct when an operation is done (attributes,
 * entries of directories, state) is not there.
 */

inline int NFS4_OK = 0;
inline int NFS4ERR_PERM = 1;
inline int NFS4ERR_NOENT = 2;
inline int NFS4ERR_IO = 5;
inline int NFS4ERR_ACCESS = 13;
inline int NFS4ERR_EXIST = 17;
inline int NFS4ERR_NOSPC = 28;
inline int NFS4ERR_ROFS = 30;
inline int NFS4ERR_NOTEMPTY = 66;
inline int NFS4ERR_DQUOT = 69;
inline int NFS4ERR_STALE = 70;
inline int NFS4ERR_BADHANDLE = 10001;
inline int NFS4ERR_NOTSUPP = 10004;
inline int NFS4ERR_DELAY = 10008;
inline int NFS4ERR_DENIED = 10010;
inline int NFS4ERR_EXPIRED = 10011;
inline int NFS4ERR_LOCKED = 10012;
inline int NFS4ERR_GRACE = 10013;

inline int UNSTABLE4 = 0;
inline int DATA_SYNC4 = 1;
inline int FILE_SYNC4 = 2;

typedef int nfsstat4;

typedef struct nfsv4opinfo {
	string noi_curpath;		/* path of the current file, as the server sees it; "<unknown>" without one */
	cred_t *noi_cred;		/* credentials */
	uint64_t noi_xid;		/* transaction ID */
	string noi_shrpath;		/* path of its export; "<unknown>" */
} nfsv4opinfo_t;

typedef struct nfsv4cbinfo {
	string nci_curpath;		/* path of the file */
} nfsv4cbinfo_t;

inline struct nfsd4_compoundargs *_nfs4_args[struct _nfs_rqst *R] = (struct nfsd4_compoundargs *)_rqst[R]->rq_argp;
inline struct nfsd4_compoundres *_nfs4_res[struct _nfs_rqst *R] = (struct nfsd4_compoundres *)_rqst[R]->rq_resp;
inline struct svc_fh *_nfs4_fh[struct _nfs_rqst *R] = &_nfs4_res[R]->cstate.current_fh;

translator nfsv4opinfo_t < struct _nfs_rqst *R > {
	noi_curpath = _fh_path[_nfs4_fh[R]];
	noi_cred = xlate <cred_t *> (R);
	noi_xid = ntohl(_rqst[R]->rq_xid);
	noi_shrpath = _fh_share[_nfs4_fh[R]];
};

typedef struct utf8string {
	uint_t utf8string_len;		/* bytes */
	string utf8string_val;		/* the text */
} utf8string;

typedef struct COMPOUND4args {
	utf8string tag;			/* what the client calls it */
	uint32_t minorversion;		/* 0, 1 or 2 */
	uint_t array_len;		/* operations */
} COMPOUND4args;

typedef struct COMPOUND4res {
	nfsstat4 status;		/* of the last operation */
	uint_t array_len;		/* operations that were done */
} COMPOUND4res;

struct _nfs4_tag { char first; };
translator utf8string < struct _nfs4_tag *R > {
	utf8string_len = _nfs4_args[(struct _nfs_rqst *)R]->taglen;
	utf8string_val = _nfs_name[_nfs4_args[(struct _nfs_rqst *)R]->tag, _nfs4_args[(struct _nfs_rqst *)R]->taglen];
};
translator COMPOUND4args < struct _nfs_rqst *R > {
	tag = xlate <utf8string> ((struct _nfs4_tag *)R);
	minorversion = _nfs4_args[R]->minorversion;
	array_len = _nfs4_args[R]->client_opcnt;
};
translator COMPOUND4res < struct _nfs_rqst *R > {
	status = _nfs4_res[R]->opcnt == 0 ? 0 : ntohl(_nfs4_args[R]->ops[_nfs4_res[R]->opcnt - 1].status);
	array_len = _nfs4_res[R]->opcnt;
};

/* An operation: the kernel's struct nfsd4_op. Its arguments and results share a union. */
struct _nfs4_op { char first; };
inline uintptr_t _nfs4_u[struct _nfs4_op *O] = (uintptr_t)&((struct nfsd4_op *)O)->u;
inline nfsstat4 _nfs4_status[struct _nfs4_op *O] = ntohl(((struct nfsd4_op *)O)->status);

/* A name is a length, and an address behind it that is aligned. */
struct _nfs4_name { char first; };
translator utf8string < struct _nfs4_name *N > {
	utf8string_len = *(uint32_t *)N;
	utf8string_val = _nfs_name[*(char **)(((uintptr_t)N + 11) & ~7UL), *(uint32_t *)N];
};

/* The result of operations that have no other. */
typedef struct nfsv4res {
	nfsstat4 status;		/* NFS4_OK, NFS4ERR_* */
} nfsv4res_t;
translator nfsv4res_t < struct _nfs4_op *O > { status = _nfs4_status[O]; };

typedef struct ACCESS4args {
	uint32_t access;		/* what is asked for: 1 read, 2 lookup, 4 modify, 8 extend, 16 delete, 32 execute */
} ACCESS4args;
translator ACCESS4args < struct _nfs4_op *O > {
	access = ((struct nfsd4_access *)_nfs4_u[O])->ac_req_access;
};

typedef struct CLOSE4args {
	uint32_t seqid;
} CLOSE4args;
translator CLOSE4args < struct _nfs4_op *O > {
	seqid = ((struct nfsd4_close *)_nfs4_u[O])->cl_seqid;
};

typedef struct COMMIT4args {
	uint64_t offset;		/* first byte */
	uint32_t count;			/* bytes; 0: to the end */
} COMMIT4args;
translator COMMIT4args < struct _nfs4_op *O > {
	offset = ((struct nfsd4_commit *)_nfs4_u[O])->co_offset;
	count = ((struct nfsd4_commit *)_nfs4_u[O])->co_count;
};

typedef struct CREATE4args {
	int type;			/* 2 directory, 3 and 4 devices, 5 link, 6 socket, 7 FIFO */
	utf8string objname;
} CREATE4args;
translator CREATE4args < struct _nfs4_op *O > {
	type = ((struct nfsd4_create *)_nfs4_u[O])->cr_type;
	objname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_create *)_nfs4_u[O])->cr_namelen);
};

typedef struct LINK4args {
	utf8string newname;
} LINK4args;
translator LINK4args < struct _nfs4_op *O > {
	newname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_link *)_nfs4_u[O])->li_namelen);
};

typedef struct LOCK4args {
	int locktype;			/* 1 read, 2 write; 3 and 4: may wait */
	int reclaim;			/* 1: after a restart of the server */
	uint64_t offset;		/* first byte */
	uint64_t length;		/* bytes; -1: to the end */
} LOCK4args;
translator LOCK4args < struct _nfs4_op *O > {
	locktype = ((struct nfsd4_lock *)_nfs4_u[O])->lk_type;
	reclaim = ((struct nfsd4_lock *)_nfs4_u[O])->lk_reclaim;
	offset = ((struct nfsd4_lock *)_nfs4_u[O])->lk_offset;
	length = ((struct nfsd4_lock *)_nfs4_u[O])->lk_length;
};

typedef struct LOCKT4args {
	int locktype;			/* as of lock */
	uint64_t offset;		/* first byte */
	uint64_t length;		/* bytes; -1: to the end */
} LOCKT4args;
translator LOCKT4args < struct _nfs4_op *O > {
	locktype = ((struct nfsd4_lockt *)_nfs4_u[O])->lt_type;
	offset = ((struct nfsd4_lockt *)_nfs4_u[O])->lt_offset;
	length = ((struct nfsd4_lockt *)_nfs4_u[O])->lt_length;
};

typedef struct LOCKU4args {
	int locktype;			/* as of lock */
	uint64_t offset;		/* first byte */
	uint64_t length;		/* bytes; -1: to the end */
} LOCKU4args;
translator LOCKU4args < struct _nfs4_op *O > {
	locktype = ((struct nfsd4_locku *)_nfs4_u[O])->lu_type;
	offset = ((struct nfsd4_locku *)_nfs4_u[O])->lu_offset;
	length = ((struct nfsd4_locku *)_nfs4_u[O])->lu_length;
};

typedef struct LOOKUP4args {
	utf8string objname;
} LOOKUP4args;
translator LOOKUP4args < struct _nfs4_op *O > {
	objname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_lookup *)_nfs4_u[O])->lo_len);
};

typedef struct OPEN4args {
	uint32_t seqid;
	uint32_t share_access;		/* 1 read, 2 write */
	uint32_t share_deny;		/* what others may not: 1 read, 2 write */
	int opentype;			/* 1: create the file if it is not there */
	int claim;			/* 0: by name; 4: the current file */
	utf8string objname;
} OPEN4args;
translator OPEN4args < struct _nfs4_op *O > {
	seqid = ((struct nfsd4_open *)_nfs4_u[O])->op_seqid;
	share_access = ((struct nfsd4_open *)_nfs4_u[O])->op_share_access;
	share_deny = ((struct nfsd4_open *)_nfs4_u[O])->op_share_deny;
	opentype = ((struct nfsd4_open *)_nfs4_u[O])->op_create;
	claim = ((struct nfsd4_open *)_nfs4_u[O])->op_claim_type;
	objname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_open *)_nfs4_u[O])->op_fnamelen);
};

typedef struct READ4args {
	uint64_t offset;		/* first byte */
	uint32_t count;			/* bytes that are wanted */
} READ4args;
translator READ4args < struct _nfs4_op *O > {
	offset = ((struct nfsd4_read *)_nfs4_u[O])->rd_offset;
	count = ((struct nfsd4_read *)_nfs4_u[O])->rd_length;
};

typedef struct READDIR4args {
	uint64_t cookie;		/* where to go on; 0: the beginning */
	uint32_t dircount;		/* bytes of names at most */
	uint32_t maxcount;		/* bytes of the reply at most */
} READDIR4args;
translator READDIR4args < struct _nfs4_op *O > {
	cookie = ((struct nfsd4_readdir *)_nfs4_u[O])->rd_cookie;
	dircount = ((struct nfsd4_readdir *)_nfs4_u[O])->rd_dircount;
	maxcount = ((struct nfsd4_readdir *)_nfs4_u[O])->rd_maxcount;
};

typedef struct REMOVE4args {
	utf8string target;
} REMOVE4args;
translator REMOVE4args < struct _nfs4_op *O > {
	target = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_remove *)_nfs4_u[O])->rm_namelen);
};

typedef struct RENAME4args {
	utf8string oldname;
	utf8string newname;
} RENAME4args;
translator RENAME4args < struct _nfs4_op *O > {
	oldname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_rename *)_nfs4_u[O])->rn_snamelen);
	newname = xlate <utf8string> ((struct _nfs4_name *)&((struct nfsd4_rename *)_nfs4_u[O])->rn_tnamelen);
};

typedef struct WRITE4args {
	uint64_t offset;		/* first byte */
	int stable;			/* UNSTABLE4, DATA_SYNC4 or FILE_SYNC4 */
	uint_t data_len;		/* bytes */
} WRITE4args;
translator WRITE4args < struct _nfs4_op *O > {
	offset = ((struct nfsd4_write *)_nfs4_u[O])->wr_offset;
	stable = ((struct nfsd4_write *)_nfs4_u[O])->wr_stable_how;
	data_len = ((struct nfsd4_write *)_nfs4_u[O])->wr_buflen;
};

typedef struct SEQUENCE4args {
	uint32_t sa_sequenceid;
	uint32_t sa_slotid;
	int sa_cachethis;		/* 1: the reply is kept for a repetition */
} SEQUENCE4args;
translator SEQUENCE4args < struct _nfs4_op *O > {
	sa_sequenceid = ((struct nfsd4_sequence *)_nfs4_u[O])->seqid;
	sa_slotid = ((struct nfsd4_sequence *)_nfs4_u[O])->slotid;
	sa_cachethis = ((struct nfsd4_sequence *)_nfs4_u[O])->cachethis;
};

typedef struct ACCESS4res {
	nfsstat4 status;
	uint32_t supported;		/* what the server can tell */
	uint32_t access;		/* what is allowed */
} ACCESS4res;
translator ACCESS4res < struct _nfs4_op *O > {
	status = _nfs4_status[O];
	supported = _nfs4_status[O] == 0 ? ((struct nfsd4_access *)_nfs4_u[O])->ac_supported : 0;
	access = _nfs4_status[O] == 0 ? ((struct nfsd4_access *)_nfs4_u[O])->ac_resp_access : 0;
};

typedef struct WRITE4res {
	nfsstat4 status;
	uint32_t count;			/* bytes that were written */
	int committed;			/* UNSTABLE4, DATA_SYNC4 or FILE_SYNC4 */
} WRITE4res;
translator WRITE4res < struct _nfs4_op *O > {
	status = _nfs4_status[O];
	count = _nfs4_status[O] == 0 ? ((struct nfsd4_write *)_nfs4_u[O])->wr_bytes_written : 0;
	committed = _nfs4_status[O] == 0 ? ((struct nfsd4_write *)_nfs4_u[O])->wr_how_written : 0;
};

/* What was read is known where the file is read. It is passed with the status and the end of the file in one number. */
typedef struct READ4res {
	nfsstat4 status;
	int eof;			/* 1 at the end of the file */
	uint_t data_len;		/* bytes that were read */
} READ4res;
inline uint64_t _nfs4_read[struct _nfs4_op *O, uint64_t BYTES] = BYTES | (uint64_t)_nfs4_status[O] << 32 |
    (uint64_t)(_nfs4_status[O] == 0 && ((struct nfsd4_read *)_nfs4_u[O])->rd_eof) << 63;
translator READ4res < uint64_t N > {
	status = N << 1 >> 33;
	eof = N >> 63;
	data_len = N << 1 >> 33 == 0 ? N & 0xffffffff : 0;
};

/* A delegation that a client has to return: the kernel's struct nfs4_delegation. */
struct _nfs4_recall { char first; };
inline struct nfs4_stid *_recall_stid[struct _nfs4_recall *D] = &((struct nfs4_delegation *)D)->dl_stid;
inline struct _nfs4_recall *_nfs4_recall_of[struct nfsd4_callback *C] =
    (struct _nfs4_recall *)((uintptr_t)C - offsetof(struct nfs4_delegation, dl_recall));

translator conninfo_t < struct _nfs4_recall *D > {
	ci_local = "<unknown>";
	ci_remote = _address[(uintptr_t)&_recall_stid[D]->sc_client->cl_addr];
	ci_protocol = _address_protocol[(uintptr_t)&_recall_stid[D]->sc_client->cl_addr];
};
translator nfsv4cbinfo_t < struct _nfs4_recall *D > {
	nci_curpath = _path_of[_inode_name[_recall_stid[D]->sc_file->fi_inode]];
};
