/*
 * NFS: what the providers of the server (nfsv3, nfsv4) and that of the client (nfscl) have in common. The structs are
 * of modules of the kernel, so each is named only in an expression: a script that uses none of them compiles where the
 * modules are not loaded. The types of arguments that are the original's have its names and those of the protocol.
 */

/* The credentials of a request, as the client gave them. */
typedef struct nfscred {
	uid_t cr_uid;			/* user */
	gid_t cr_gid;			/* group */
} cred_t;

typedef struct nfs_fh3 {
	uint_t fh3_length;		/* bytes of the handle */
	uintptr_t fh3_data;		/* address of the handle */
} nfs_fh3;

/* A request that the server works on: the kernel's struct svc_rqst. */
struct _nfs_rqst { char first; };
inline struct svc_rqst *_rqst[struct _nfs_rqst *R] = (struct svc_rqst *)R;

/* An address and its family, which is the first member of a struct sockaddr of any kind. */
inline int _address_family[uintptr_t A] = ((struct sockaddr_in *)A)->sin_family;
inline string _address[uintptr_t A] =
    _address_family[A] == AF_INET ? inet_ntoa(&((struct sockaddr_in *)A)->sin_addr.s_addr) :
    _address_family[A] == AF_INET6 ? inet_ntoa6(&((struct sockaddr_in6 *)A)->sin6_addr) : "<unknown>";
inline string _address_protocol[uintptr_t A] = _address_family[A] == AF_INET ? "ipv4" :
    _address_family[A] == AF_INET6 ? "ipv6" : "<unknown>";

translator conninfo_t < struct _nfs_rqst *R > {
	ci_local = _address[(uintptr_t)&_rqst[R]->rq_daddr];
	ci_remote = _address[(uintptr_t)&_rqst[R]->rq_addr];
	ci_protocol = _address_protocol[(uintptr_t)&_rqst[R]->rq_addr];
};

translator cred_t < struct _nfs_rqst *R > {
	cr_uid = _rqst[R]->rq_cred.cr_uid.val;
	cr_gid = _rqst[R]->rq_cred.cr_gid.val;
};

/* A handle has a file and an export from when it is verified until it is put. Paths are from the root of the system. */
inline int _fh_has_file[struct svc_fh *F] = F != NULL && F->fh_dentry != NULL && F->fh_export != NULL;
inline string _fh_path[struct svc_fh *F] =
    _fh_has_file[F] ? _dentrypath(F->fh_dentry, F->fh_export->ex_path.mnt) : "<unknown>";
inline string _fh_share[struct svc_fh *F] = _fh_has_file[F] ?
    _dentrypath(F->fh_export->ex_path.dentry, F->fh_export->ex_path.mnt) : "<unknown>";

struct _nfs_fh { char first; };
translator nfs_fh3 < struct _nfs_fh *F > {
	fh3_length = ((struct svc_fh *)F)->fh_handle.fh_size;
	fh3_data = (uintptr_t)&((struct svc_fh *)F)->fh_handle.fh_raw;
};

/* A name of a request is behind its length. It has no end of its own. */
inline string _nfs_name[char *NAME, uint_t LENGTH] = NAME == NULL ? "" : substr(stringof(NAME), 0, LENGTH);
