/*
 * The server of NFS 4: compounds, and the operations of each in their order. The kernel works through the operations of
 * a compound in a loop, and passes a tracepoint before it and at the end of each operation. There `done` of the one and
 * `start` of the next fire: between them is no work. A repetition that is answered from the cache of its session has no
 * `done`.
 */
provider nfsv4 {
	probe compound__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R, COMPOUND4args *R);
	probe compound__done(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R, COMPOUND4res *R);
	probe cb__recall__start(struct _nfs4_recall *D : conninfo_t *D, nfsv4cbinfo_t *D);
	probe cb__recall__done(struct _nfs4_recall *D, int STATUS : conninfo_t *D, nfsv4cbinfo_t *D, int STATUS);
	probe op__access__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, ACCESS4args *O);
	probe op__access__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    ACCESS4res *O);
	probe op__close__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, CLOSE4args *O);
	probe op__close__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__commit__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, COMMIT4args *O);
	probe op__commit__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__create__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, CREATE4args *O);
	probe op__create__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__delegpurge__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__delegpurge__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__delegreturn__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__delegreturn__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__getattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__getattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__getfh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__getfh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__link__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, LINK4args *O);
	probe op__link__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__lock__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, LOCK4args *O);
	probe op__lock__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__lockt__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, LOCKT4args *O);
	probe op__lockt__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__locku__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, LOCKU4args *O);
	probe op__locku__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__lookup__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, LOOKUP4args *O);
	probe op__lookup__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__lookupp__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__lookupp__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__nverify__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__nverify__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__open__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, OPEN4args *O);
	probe op__open__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__openattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__openattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__open__confirm__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__open__confirm__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__open__downgrade__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__open__downgrade__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__putfh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__putfh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__putpubfh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__putpubfh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__putrootfh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__putrootfh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__read__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, READ4args *O);
	probe op__read__done(struct _nfs_rqst *R, uint64_t N : conninfo_t *R, nfsv4opinfo_t *R, READ4res *N);
	probe op__readdir__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, READDIR4args *O);
	probe op__readdir__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__readlink__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__readlink__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__remove__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, REMOVE4args *O);
	probe op__remove__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__rename__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, RENAME4args *O);
	probe op__rename__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__renew__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__renew__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__restorefh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__restorefh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__savefh__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__savefh__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__secinfo__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__secinfo__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__setattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__setattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__setclientid__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__setclientid__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__setclientid__confirm__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__setclientid__confirm__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__verify__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__verify__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__write__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, WRITE4args *O);
	probe op__write__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    WRITE4res *O);
	probe op__release__lockowner__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__release__lockowner__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__backchannel__ctl__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__backchannel__ctl__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__bind__conn__to__session__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__bind__conn__to__session__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__exchange__id__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__exchange__id__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__create__session__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__create__session__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__destroy__session__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__destroy__session__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__free__stateid__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__free__stateid__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__get__dir__delegation__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__get__dir__delegation__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__getdeviceinfo__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__getdeviceinfo__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__getdevicelist__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__getdevicelist__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__layoutcommit__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__layoutcommit__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__layoutget__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__layoutget__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__layoutreturn__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__layoutreturn__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__secinfo__no__name__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__secinfo__no__name__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__sequence__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, SEQUENCE4args *O);
	probe op__sequence__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__set__ssv__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__set__ssv__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__test__stateid__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__test__stateid__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__want__delegation__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__want__delegation__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__destroy__clientid__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__destroy__clientid__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__reclaim__complete__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__reclaim__complete__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__allocate__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__allocate__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__copy__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__copy__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__copy__notify__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__copy__notify__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__deallocate__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__deallocate__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__io__advise__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__io__advise__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__layouterror__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__layouterror__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__layoutstats__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__layoutstats__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__offload__cancel__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__offload__cancel__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__offload__status__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__offload__status__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__read__plus__start(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R, READ4args *O);
	probe op__read__plus__done(struct _nfs_rqst *R, uint64_t N : conninfo_t *R, nfsv4opinfo_t *R, READ4res *N);
	probe op__seek__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__seek__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__write__same__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__write__same__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__clone__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__clone__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__getxattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__getxattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__setxattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__setxattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__listxattrs__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__listxattrs__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__removexattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__removexattr__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
	probe op__illegal__start(struct _nfs_rqst *R : conninfo_t *R, nfsv4opinfo_t *R);
	probe op__illegal__done(struct _nfs_rqst *R, struct _nfs4_op *O : conninfo_t *R, nfsv4opinfo_t *R,
	    nfsv4res_t *O);
};

self uint64_t rqst;
self uint64_t bytes;

inline uint_t _nfs4_number[struct _nfs4_op *O] = ((struct nfsd4_op *)O)->opnum;
inline struct _nfs4_op *_nfs4_op[struct _nfs_rqst *R, int N] = (struct _nfs4_op *)&_nfs4_args[R]->ops[N];

fbt:nfsd:nfsd4_proc_compound:entry { self->rqst = arg0; }
fbt:nfsd:nfsd4_proc_compound:entry { compound__start((struct _nfs_rqst *)arg0); }
rawtp:nfsd::nfsd_read_io_done { self->bytes = args[3]; }

/* What is done: an operation, with its number. */
rawtp:nfsd::nfsd_compound_status /self->rqst != 0/
{
	this->r = (struct _nfs_rqst *)self->rqst;
	this->o = _nfs4_op[this->r, args[1] - 1];
	this->done = _nfs4_number[this->o];
}
rawtp:nfsd::nfsd_compound_status /this->done == 3/ { op__access__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 4/ { op__close__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 5/ { op__commit__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 6/ { op__create__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 7/ { op__delegpurge__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 8/ { op__delegreturn__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 9/ { op__getattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 10/ { op__getfh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 11/ { op__link__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 12/ { op__lock__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 13/ { op__lockt__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 14/ { op__locku__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 15/ { op__lookup__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 16/ { op__lookupp__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 17/ { op__nverify__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 18/ { op__open__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 19/ { op__openattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 20/ { op__open__confirm__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 21/ { op__open__downgrade__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 22/ { op__putfh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 23/ { op__putpubfh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 24/ { op__putrootfh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 25/ { op__read__done(this->r, _nfs4_read[this->o, self->bytes]); }
rawtp:nfsd::nfsd_compound_status /this->done == 26/ { op__readdir__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 27/ { op__readlink__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 28/ { op__remove__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 29/ { op__rename__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 30/ { op__renew__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 31/ { op__restorefh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 32/ { op__savefh__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 33/ { op__secinfo__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 34/ { op__setattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 35/ { op__setclientid__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 36/ { op__setclientid__confirm__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 37/ { op__verify__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 38/ { op__write__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 39/ { op__release__lockowner__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 40/ { op__backchannel__ctl__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 41/ { op__bind__conn__to__session__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 42/ { op__exchange__id__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 43/ { op__create__session__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 44/ { op__destroy__session__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 45/ { op__free__stateid__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 46/ { op__get__dir__delegation__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 47/ { op__getdeviceinfo__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 48/ { op__getdevicelist__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 49/ { op__layoutcommit__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 50/ { op__layoutget__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 51/ { op__layoutreturn__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 52/ { op__secinfo__no__name__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 53/ { op__sequence__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 54/ { op__set__ssv__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 55/ { op__test__stateid__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 56/ { op__want__delegation__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 57/ { op__destroy__clientid__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 58/ { op__reclaim__complete__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 59/ { op__allocate__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 60/ { op__copy__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 61/ { op__copy__notify__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 62/ { op__deallocate__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 63/ { op__io__advise__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 64/ { op__layouterror__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 65/ { op__layoutstats__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 66/ { op__offload__cancel__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 67/ { op__offload__status__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 68/
{
	op__read__plus__done(this->r, _nfs4_read[this->o, self->bytes]);
}
rawtp:nfsd::nfsd_compound_status /this->done == 69/ { op__seek__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 70/ { op__write__same__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 71/ { op__clone__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 72/ { op__getxattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 73/ { op__setxattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 74/ { op__listxattrs__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 75/ { op__removexattr__done(this->r, this->o); }
rawtp:nfsd::nfsd_compound_status /this->done == 10044/ { op__illegal__done(this->r, this->o); }

/* What starts: the first operation, or the one behind what is done. */
rawtp:nfsd::nfsd_compound
{
	this->r = (struct _nfs_rqst *)args[0];
	this->o = _nfs4_op[this->r, 0];
	this->n = _nfs4_args[this->r]->opcnt == 0 ? 0 : _nfs4_number[this->o];
	self->bytes = 0;
}
rawtp:nfsd::nfsd_compound_status /self->rqst != 0/
{
	this->o = _nfs4_op[this->r, args[1]];
	this->n = args[2] != 0 || args[1] >= _nfs4_args[this->r]->opcnt ? 0 : _nfs4_number[this->o];
	self->bytes = 0;
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 3/ { op__access__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 4/ { op__close__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 5/ { op__commit__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 6/ { op__create__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 7/ { op__delegpurge__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 8/ { op__delegreturn__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 9/ { op__getattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 10/ { op__getfh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 11/ { op__link__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 12/ { op__lock__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 13/ { op__lockt__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 14/ { op__locku__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 15/ { op__lookup__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 16/ { op__lookupp__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 17/ { op__nverify__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 18/ { op__open__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 19/ { op__openattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 20/ { op__open__confirm__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 21/ { op__open__downgrade__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 22/ { op__putfh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 23/ { op__putpubfh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 24/ { op__putrootfh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 25/ { op__read__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 26/ { op__readdir__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 27/ { op__readlink__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 28/ { op__remove__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 29/ { op__rename__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 30/ { op__renew__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 31/ { op__restorefh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 32/ { op__savefh__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 33/ { op__secinfo__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 34/ { op__setattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 35/ { op__setclientid__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 36/
{
	op__setclientid__confirm__start(this->r);
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 37/ { op__verify__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 38/ { op__write__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 39/
{
	op__release__lockowner__start(this->r);
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 40/ { op__backchannel__ctl__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 41/
{
	op__bind__conn__to__session__start(this->r);
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 42/ { op__exchange__id__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 43/ { op__create__session__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 44/ { op__destroy__session__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 45/ { op__free__stateid__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 46/
{
	op__get__dir__delegation__start(this->r);
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 47/ { op__getdeviceinfo__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 48/ { op__getdevicelist__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 49/ { op__layoutcommit__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 50/ { op__layoutget__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 51/ { op__layoutreturn__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 52/ { op__secinfo__no__name__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 53/ { op__sequence__start(this->r, this->o); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 54/ { op__set__ssv__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 55/ { op__test__stateid__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 56/ { op__want__delegation__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 57/ { op__destroy__clientid__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 58/ { op__reclaim__complete__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 59/ { op__allocate__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 60/ { op__copy__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 61/ { op__copy__notify__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 62/ { op__deallocate__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 63/ { op__io__advise__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 64/ { op__layouterror__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 65/ { op__layoutstats__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 66/ { op__offload__cancel__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 67/ { op__offload__status__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 68/
{
	op__read__plus__start(this->r, this->o);
}
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 69/ { op__seek__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 70/ { op__write__same__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 71/ { op__clone__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 72/ { op__getxattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 73/ { op__setxattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 74/ { op__listxattrs__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 75/ { op__removexattr__start(this->r); }
rawtp:nfsd::nfsd_compound, rawtp:nfsd::nfsd_compound_status /this->n == 10044/ { op__illegal__start(this->r); }

fbt:nfsd:nfsd4_proc_compound:return /self->rqst != 0/ { compound__done((struct _nfs_rqst *)self->rqst); }
fbt:nfsd:nfsd4_proc_compound:return { self->rqst = 0; }

/* A delegation that a client has to return: the kernel's struct nfs4_delegation. Its first member is what
 * the tracepoint has. */
rawtp:nfsd::nfsd_cb_recall { cb__recall__start((struct _nfs4_recall *)args[0]); }
/* It returns 0 where the client is asked again. */
fbt:nfsd:nfsd4_cb_recall_done:entry { self->recall = args[0]; self->status = args[1]->tk_status; }
fbt:nfsd:nfsd4_cb_recall_done:return /self->recall != NULL && arg1 != 0/
{
	cb__recall__done(_nfs4_recall_of[self->recall], self->status);
}
fbt:nfsd:nfsd4_cb_recall_done:return { self->recall = NULL; self->status = 0; }
