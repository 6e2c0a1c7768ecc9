/*
 * The client of NFS 3 and 4: each call to a server, when it starts and when it is done. A call of NFS 4 is a compound,
 * and has the name of what the client wants by it. The names are those of the kernel (nfsstat -c).
 */

typedef struct nfsclopinfo {
	string noi_curpath;		/* read, write, commit: path of the file; else "<unknown>" */
	cred_t *noi_cred;		/* credentials */
	uint64_t noi_xid;		/* transaction ID; 0 at the start, where it has none yet */
	uint64_t noi_call;		/* address of the call, the same from its start until it is done */
	int noi_version;		/* 3 or 4 */
	pid_t noi_pid;			/* process that made the call */
	string noi_server;		/* the server, as mount has named it */
	uint64_t noi_offset;		/* read, write, commit: first byte; else 0 */
	uint64_t noi_count;		/* read, write, commit: bytes that are asked for; else 0 */
} nfsclopinfo_t;

typedef struct nfsclres {
	int nr_status;			/* 0, or the number of the error */
	uint64_t nr_count;		/* read, write: bytes that were read or written; else 0 */
	uint64_t nr_rtt;		/* nanoseconds from when it was sent last until the answer */
	uint64_t nr_total;		/* nanoseconds from its start until now */
} nfsclres_t;

/* A call: the kernel's struct rpc_task. */
struct _nfs_call { char first; };
inline struct rpc_task *_call[struct _nfs_call *T] = (struct rpc_task *)T;

/*
 * Procedures by version, and the number under which the client counts them: 300 is the first of NFS 3, 400 the first of
 * NFS 4. Those of NFS 4 that were added last (from 457 on) have other numbers on other kernels, and are known by their
 * name.
 */
inline int _call_number[struct rpc_task *T] = T->tk_client == NULL || T->tk_client->cl_prog != 100003 ? 0 :
    T->tk_client->cl_vers * 100 + T->tk_msg.rpc_proc->p_statidx;
inline string _call_name[struct rpc_task *T] = stringof(T->tk_msg.rpc_proc->p_name);

/* Sockets have a struct of this kind; other transports (RDMA) have numbers from 256 on. */
inline struct sock *_call_sock[struct rpc_task *T] = T->tk_xprt == NULL || T->tk_xprt->prot >= 256 ?
    (struct sock *)NULL : ((struct sock_xprt *)T->tk_xprt)->inet;
inline uintptr_t _call_address[struct rpc_task *T] = (uintptr_t)&T->tk_xprt->addr;

translator conninfo_t < struct _nfs_call *T > {
	ci_local = _sock_laddr[_call_sock[_call[T]]];
	ci_remote = _call[T]->tk_xprt == NULL ? "<unknown>" : _address[_call_address[_call[T]]];
	ci_protocol = _call[T]->tk_xprt == NULL ? "<unknown>" : _address_protocol[_call_address[_call[T]]];
};

translator cred_t < struct _nfs_call *T > {
	cr_uid = _call[T]->tk_msg.rpc_cred == NULL ? 0 : _call[T]->tk_msg.rpc_cred->fsuid.val;
	cr_gid = _call[T]->tk_msg.rpc_cred == NULL ? 0 : _call[T]->tk_msg.rpc_cred->fsgid.val;
};

/* Reads and writes have the same arguments and results in both versions. */
inline int _moves[struct rpc_task *T] = _call_number[T] == 306 || _call_number[T] == 307 || _call_number[T] == 401 ||
    _call_number[T] == 402 || (_call_number[T] >= 457 && _call_name[T] == "READ_PLUS");
/* A commit behind a copy within the server has another struct. */
inline int _commits[struct rpc_task *T] = (_call_number[T] == 321 || _call_number[T] == 403) &&
    (uintptr_t)T->tk_msg.rpc_argp == (uintptr_t)&((struct nfs_commit_data *)T->tk_calldata)->args;
inline struct inode *_call_inode[struct rpc_task *T] =
    _moves[T] ? ((struct nfs_pgio_header *)T->tk_calldata)->inode :
    _commits[T] ? ((struct nfs_commit_data *)T->tk_calldata)->inode : (struct inode *)NULL;

/* The root of a mount of NFS is not that of its file system. */
inline struct mount *_call_mount[struct dentry *D] = D == NULL ? (struct mount *)NULL : _first_mount[D->d_sb];
inline string _call_path[struct dentry *D] =
    _call_mount[D] == NULL ? "<unknown>" : _dentrypath(D, &_call_mount[D]->mnt);

translator nfsclopinfo_t < struct _nfs_call *T > {
	noi_curpath = _call_path[_inode_name[_call_inode[_call[T]]]];
	noi_cred = xlate <cred_t *> (T);
	noi_xid = _call[T]->tk_rqstp == NULL ? 0 : ntohl(_call[T]->tk_rqstp->rq_xid);
	noi_call = (uint64_t)T;
	noi_version = _call[T]->tk_client->cl_vers;
	noi_pid = _call[T]->tk_owner;
	noi_server = _call[T]->tk_xprt == NULL ? "<unknown>" : stringof(_call[T]->tk_xprt->servername);
	noi_offset = _moves[_call[T]] ? ((struct nfs_pgio_args *)_call[T]->tk_msg.rpc_argp)->offset :
	    _commits[_call[T]] ? ((struct nfs_commitargs *)_call[T]->tk_msg.rpc_argp)->offset : 0;
	noi_count = _moves[_call[T]] ? ((struct nfs_pgio_args *)_call[T]->tk_msg.rpc_argp)->count :
	    _commits[_call[T]] ? ((struct nfs_commitargs *)_call[T]->tk_msg.rpc_argp)->count : 0;
};

translator nfsclres_t < struct _nfs_call *T > {
	nr_status = _call[T]->tk_status < 0 ? -_call[T]->tk_status : 0;
	nr_count = _moves[_call[T]] ? ((struct nfs_pgio_res *)_call[T]->tk_msg.rpc_resp)->count : 0;
	nr_rtt = _call[T]->tk_rqstp == NULL ? 0 : _call[T]->tk_rqstp->rq_rtt;
	nr_total = timestamp - _call[T]->tk_start;
};

provider nfscl {
	probe op__null__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__null__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__getattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__getattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__setattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__setattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__lookup__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__lookup__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__access__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__access__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__readlink__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__readlink__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__read__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__read__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__write__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__write__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__create__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__create__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__mkdir__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__mkdir__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__symlink__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__symlink__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__mknod__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__mknod__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__remove__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__remove__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__rmdir__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__rmdir__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__rename__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__rename__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__link__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__link__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__readdir__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__readdir__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__readdirplus__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__readdirplus__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__fsstat__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__fsstat__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__fsinfo__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__fsinfo__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__pathconf__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__pathconf__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__commit__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__commit__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__open__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__open__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__open__confirm__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__open__confirm__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__open__noattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__open__noattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__open__downgrade__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__open__downgrade__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__close__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__close__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__renew__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__renew__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__setclientid__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__setclientid__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__setclientid__confirm__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__setclientid__confirm__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__lock__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__lock__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__lockt__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__lockt__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__locku__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__locku__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__lookup__root__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__lookup__root__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__statfs__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__statfs__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__server__caps__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__server__caps__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__delegreturn__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__delegreturn__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__getacl__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__getacl__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__setacl__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__setacl__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__fs__locations__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__fs__locations__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__release__lockowner__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__release__lockowner__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__secinfo__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__secinfo__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__fsid__present__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__fsid__present__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__exchange__id__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__exchange__id__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__create__session__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__create__session__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__destroy__session__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__destroy__session__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__sequence__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__sequence__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__get__lease__time__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__get__lease__time__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__reclaim__complete__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__reclaim__complete__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__layoutget__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__layoutget__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__getdeviceinfo__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__getdeviceinfo__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__layoutcommit__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__layoutcommit__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__layoutreturn__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__layoutreturn__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__secinfo__no__name__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__secinfo__no__name__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__test__stateid__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__test__stateid__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__free__stateid__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__free__stateid__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__bind__conn__to__session__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__bind__conn__to__session__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__destroy__clientid__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__destroy__clientid__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__seek__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__seek__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__allocate__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__allocate__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__deallocate__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__deallocate__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__layoutstats__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__layoutstats__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__clone__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__clone__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__copy__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__copy__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__offload__cancel__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__offload__cancel__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__lookupp__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__lookupp__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__layouterror__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__layouterror__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__copy__notify__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__copy__notify__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__getxattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__getxattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__setxattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__setxattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__listxattrs__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__listxattrs__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__removexattr__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__removexattr__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__read__plus__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__read__plus__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__zero__range__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__zero__range__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
	probe op__offload__status__start(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T);
	probe op__offload__status__done(struct _nfs_call *T : conninfo_t *T, nfsclopinfo_t *T, nfsclres_t *T);
};

rawtp:sunrpc::rpc_request, rawtp:sunrpc::rpc_stats_latency
{
	this->c = (struct _nfs_call *)args[0];
	this->n = _call_number[args[0]];
}
rawtp:sunrpc::rpc_request /this->n == 300 || this->n == 400/ { op__null__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 300 || this->n == 400/ { op__null__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 301 || this->n == 418/ { op__getattr__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 301 || this->n == 418/ { op__getattr__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 302 || this->n == 409/ { op__setattr__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 302 || this->n == 409/ { op__setattr__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 303 || this->n == 419/ { op__lookup__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 303 || this->n == 419/ { op__lookup__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 304 || this->n == 417/ { op__access__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 304 || this->n == 417/ { op__access__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 305 || this->n == 428/ { op__readlink__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 305 || this->n == 428/ { op__readlink__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 306 || this->n == 401/ { op__read__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 306 || this->n == 401/ { op__read__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 307 || this->n == 402/ { op__write__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 307 || this->n == 402/ { op__write__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 308 || this->n == 425/ { op__create__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 308 || this->n == 425/ { op__create__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 309/ { op__mkdir__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 309/ { op__mkdir__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 310 || this->n == 424/ { op__symlink__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 310 || this->n == 424/ { op__symlink__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 311/ { op__mknod__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 311/ { op__mknod__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 312 || this->n == 421/ { op__remove__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 312 || this->n == 421/ { op__remove__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 313/ { op__rmdir__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 313/ { op__rmdir__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 314 || this->n == 422/ { op__rename__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 314 || this->n == 422/ { op__rename__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 315 || this->n == 423/ { op__link__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 315 || this->n == 423/ { op__link__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 316 || this->n == 429/ { op__readdir__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 316 || this->n == 429/ { op__readdir__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 317/ { op__readdirplus__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 317/ { op__readdirplus__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 318/ { op__fsstat__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 318/ { op__fsstat__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 319 || this->n == 410/ { op__fsinfo__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 319 || this->n == 410/ { op__fsinfo__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 320 || this->n == 426/ { op__pathconf__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 320 || this->n == 426/ { op__pathconf__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 321 || this->n == 403/ { op__commit__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 321 || this->n == 403/ { op__commit__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 404/ { op__open__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 404/ { op__open__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 405/ { op__open__confirm__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 405/ { op__open__confirm__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 406/ { op__open__noattr__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 406/ { op__open__noattr__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 407/ { op__open__downgrade__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 407/ { op__open__downgrade__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 408/ { op__close__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 408/ { op__close__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 411/ { op__renew__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 411/ { op__renew__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 412/ { op__setclientid__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 412/ { op__setclientid__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 413/ { op__setclientid__confirm__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 413/ { op__setclientid__confirm__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 414/ { op__lock__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 414/ { op__lock__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 415/ { op__lockt__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 415/ { op__lockt__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 416/ { op__locku__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 416/ { op__locku__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 420/ { op__lookup__root__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 420/ { op__lookup__root__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 427/ { op__statfs__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 427/ { op__statfs__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 430/ { op__server__caps__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 430/ { op__server__caps__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 431/ { op__delegreturn__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 431/ { op__delegreturn__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 432/ { op__getacl__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 432/ { op__getacl__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 433/ { op__setacl__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 433/ { op__setacl__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 434/ { op__fs__locations__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 434/ { op__fs__locations__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 435/ { op__release__lockowner__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 435/ { op__release__lockowner__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 436/ { op__secinfo__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 436/ { op__secinfo__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 437/ { op__fsid__present__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 437/ { op__fsid__present__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 438/ { op__exchange__id__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 438/ { op__exchange__id__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 439/ { op__create__session__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 439/ { op__create__session__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 440/ { op__destroy__session__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 440/ { op__destroy__session__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 441/ { op__sequence__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 441/ { op__sequence__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 442/ { op__get__lease__time__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 442/ { op__get__lease__time__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 443/ { op__reclaim__complete__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 443/ { op__reclaim__complete__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 444/ { op__layoutget__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 444/ { op__layoutget__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 445/ { op__getdeviceinfo__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 445/ { op__getdeviceinfo__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 446/ { op__layoutcommit__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 446/ { op__layoutcommit__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 447/ { op__layoutreturn__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 447/ { op__layoutreturn__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 448/ { op__secinfo__no__name__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 448/ { op__secinfo__no__name__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 449/ { op__test__stateid__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 449/ { op__test__stateid__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 450/ { op__free__stateid__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 450/ { op__free__stateid__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 452/ { op__bind__conn__to__session__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 452/ { op__bind__conn__to__session__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 453/ { op__destroy__clientid__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 453/ { op__destroy__clientid__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 454/ { op__seek__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 454/ { op__seek__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 455/ { op__allocate__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 455/ { op__allocate__done(this->c); }
rawtp:sunrpc::rpc_request /this->n == 456/ { op__deallocate__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n == 456/ { op__deallocate__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "LAYOUTSTATS"/
{
	op__layoutstats__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "LAYOUTSTATS"/
{
	op__layoutstats__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "CLONE"/ { op__clone__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "CLONE"/ { op__clone__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "COPY"/ { op__copy__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "COPY"/ { op__copy__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "OFFLOAD_CANCEL"/
{
	op__offload__cancel__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "OFFLOAD_CANCEL"/
{
	op__offload__cancel__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "LOOKUPP"/ { op__lookupp__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "LOOKUPP"/ { op__lookupp__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "LAYOUTERROR"/
{
	op__layouterror__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "LAYOUTERROR"/
{
	op__layouterror__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "COPY_NOTIFY"/
{
	op__copy__notify__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "COPY_NOTIFY"/
{
	op__copy__notify__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "GETXATTR"/ { op__getxattr__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "GETXATTR"/ { op__getxattr__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "SETXATTR"/ { op__setxattr__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "SETXATTR"/ { op__setxattr__done(this->c); }
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "LISTXATTRS"/ { op__listxattrs__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "LISTXATTRS"/
{
	op__listxattrs__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "REMOVEXATTR"/
{
	op__removexattr__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "REMOVEXATTR"/
{
	op__removexattr__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "READ_PLUS"/ { op__read__plus__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "READ_PLUS"/
{
	op__read__plus__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "ZERO_RANGE"/ { op__zero__range__start(this->c); }
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "ZERO_RANGE"/
{
	op__zero__range__done(this->c);
}
rawtp:sunrpc::rpc_request /this->n >= 457 && _call_name[args[0]] == "OFFLOAD_STATUS"/
{
	op__offload__status__start(this->c);
}
rawtp:sunrpc::rpc_stats_latency /this->n >= 457 && _call_name[args[0]] == "OFFLOAD_STATUS"/
{
	op__offload__status__done(this->c);
}
