/*
 * The server of NFS 3: each procedure, when it starts and when it is done. The kernel verifies the handle of a request
 * in the middle of its procedure (fh_verify()), maybe more than once: then `start` fires, when the path can be known. A
 * request that is refused before that starts at its end. The variable of a procedure is its request, and has bit 0
 * when `start` has fired.
 */
provider nfsv3 {
	probe op__null__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R);
	probe op__null__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R);
	probe op__getattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, GETATTR3args *R);
	probe op__getattr__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, GETATTR3res *R);
	probe op__setattr__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, SETATTR3args *R);
	probe op__setattr__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, SETATTR3res *R);
	probe op__lookup__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, LOOKUP3args *R);
	probe op__lookup__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, LOOKUP3res *R);
	probe op__access__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, ACCESS3args *R);
	probe op__access__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, ACCESS3res *R);
	probe op__readlink__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READLINK3args *R);
	probe op__readlink__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READLINK3res *R);
	probe op__read__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READ3args *R);
	probe op__read__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READ3res *R);
	probe op__write__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, WRITE3args *R);
	probe op__write__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, WRITE3res *R);
	probe op__create__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, CREATE3args *R);
	probe op__create__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, CREATE3res *R);
	probe op__mkdir__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, MKDIR3args *R);
	probe op__mkdir__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, MKDIR3res *R);
	probe op__symlink__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, SYMLINK3args *R);
	probe op__symlink__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, SYMLINK3res *R);
	probe op__mknod__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, MKNOD3args *R);
	probe op__mknod__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, MKNOD3res *R);
	probe op__remove__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, REMOVE3args *R);
	probe op__remove__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, REMOVE3res *R);
	probe op__rmdir__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, RMDIR3args *R);
	probe op__rmdir__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, RMDIR3res *R);
	probe op__rename__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, RENAME3args *R);
	probe op__rename__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, RENAME3res *R);
	probe op__link__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, LINK3args *R);
	probe op__link__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, LINK3res *R);
	probe op__readdir__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READDIR3args *R);
	probe op__readdir__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READDIR3res *R);
	probe op__readdirplus__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READDIRPLUS3args *R);
	probe op__readdirplus__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, READDIRPLUS3res *R);
	probe op__fsstat__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, FSSTAT3args *R);
	probe op__fsstat__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, FSSTAT3res *R);
	probe op__fsinfo__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, FSINFO3args *R);
	probe op__fsinfo__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, FSINFO3res *R);
	probe op__pathconf__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, PATHCONF3args *R);
	probe op__pathconf__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, PATHCONF3res *R);
	probe op__commit__start(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, COMMIT3args *R);
	probe op__commit__done(struct _nfs_rqst *R : conninfo_t *R, nfsv3opinfo_t *R, COMMIT3res *R);
};

self uint64_t null, getattr, setattr, lookup, access, readlink, read, write, create, mkdir, symlink, mknod,
    remove, rmdir, rename, link, readdir, readdirplus, fsstat, fsinfo, pathconf, commit;

inline int _nfs3_verifies[uint64_t R] = R != 0 && !(R & 1);
inline struct _nfs_rqst *_nfs3_request[uint64_t R] = (struct _nfs_rqst *)(R & ~1UL);

/* The protocol of ACLs has a procedure of this name too. */
inline int _nfs3_null[struct svc_rqst *R] = R->rq_prog == 100003 && R->rq_vers == 3 && R->rq_proc == 0;

fbt:nfsd:nfsd_dispatch:entry /_nfs3_null[(struct svc_rqst *)arg0]/
{
	self->null = arg0;
	op__null__start((struct _nfs_rqst *)arg0);
}
fbt:nfsd:nfsd_dispatch:return /self->null != 0/ { op__null__done((struct _nfs_rqst *)self->null); self->null = 0; }

fbt:nfsd:nfsd3_proc_getattr:entry { self->getattr = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->getattr]/
{
	op__getattr__start(_nfs3_request[self->getattr]);
	self->getattr |= 1;
}
fbt:nfsd:nfsd3_proc_getattr:return /_nfs3_verifies[self->getattr]/
{
	op__getattr__start(_nfs3_request[self->getattr]);
}
fbt:nfsd:nfsd3_proc_getattr:return /self->getattr != 0/
{
	op__getattr__done(_nfs3_request[self->getattr]);
	self->getattr = 0;
}

fbt:nfsd:nfsd3_proc_setattr:entry { self->setattr = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->setattr]/
{
	op__setattr__start(_nfs3_request[self->setattr]);
	self->setattr |= 1;
}
fbt:nfsd:nfsd3_proc_setattr:return /_nfs3_verifies[self->setattr]/
{
	op__setattr__start(_nfs3_request[self->setattr]);
}
fbt:nfsd:nfsd3_proc_setattr:return /self->setattr != 0/
{
	op__setattr__done(_nfs3_request[self->setattr]);
	self->setattr = 0;
}

fbt:nfsd:nfsd3_proc_lookup:entry { self->lookup = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->lookup]/
{
	op__lookup__start(_nfs3_request[self->lookup]);
	self->lookup |= 1;
}
fbt:nfsd:nfsd3_proc_lookup:return /_nfs3_verifies[self->lookup]/ { op__lookup__start(_nfs3_request[self->lookup]); }
fbt:nfsd:nfsd3_proc_lookup:return /self->lookup != 0/
{
	op__lookup__done(_nfs3_request[self->lookup]);
	self->lookup = 0;
}

fbt:nfsd:nfsd3_proc_access:entry { self->access = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->access]/
{
	op__access__start(_nfs3_request[self->access]);
	self->access |= 1;
}
fbt:nfsd:nfsd3_proc_access:return /_nfs3_verifies[self->access]/ { op__access__start(_nfs3_request[self->access]); }
fbt:nfsd:nfsd3_proc_access:return /self->access != 0/
{
	op__access__done(_nfs3_request[self->access]);
	self->access = 0;
}

fbt:nfsd:nfsd3_proc_readlink:entry { self->readlink = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->readlink]/
{
	op__readlink__start(_nfs3_request[self->readlink]);
	self->readlink |= 1;
}
fbt:nfsd:nfsd3_proc_readlink:return /_nfs3_verifies[self->readlink]/
{
	op__readlink__start(_nfs3_request[self->readlink]);
}
fbt:nfsd:nfsd3_proc_readlink:return /self->readlink != 0/
{
	op__readlink__done(_nfs3_request[self->readlink]);
	self->readlink = 0;
}

fbt:nfsd:nfsd3_proc_read:entry { self->read = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->read]/
{
	op__read__start(_nfs3_request[self->read]);
	self->read |= 1;
}
fbt:nfsd:nfsd3_proc_read:return /_nfs3_verifies[self->read]/ { op__read__start(_nfs3_request[self->read]); }
fbt:nfsd:nfsd3_proc_read:return /self->read != 0/
{
	op__read__done(_nfs3_request[self->read]);
	self->read = 0;
}

fbt:nfsd:nfsd3_proc_write:entry { self->write = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->write]/
{
	op__write__start(_nfs3_request[self->write]);
	self->write |= 1;
}
fbt:nfsd:nfsd3_proc_write:return /_nfs3_verifies[self->write]/ { op__write__start(_nfs3_request[self->write]); }
fbt:nfsd:nfsd3_proc_write:return /self->write != 0/
{
	op__write__done(_nfs3_request[self->write]);
	self->write = 0;
}

fbt:nfsd:nfsd3_proc_create:entry { self->create = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->create]/
{
	op__create__start(_nfs3_request[self->create]);
	self->create |= 1;
}
fbt:nfsd:nfsd3_proc_create:return /_nfs3_verifies[self->create]/ { op__create__start(_nfs3_request[self->create]); }
fbt:nfsd:nfsd3_proc_create:return /self->create != 0/
{
	op__create__done(_nfs3_request[self->create]);
	self->create = 0;
}

fbt:nfsd:nfsd3_proc_mkdir:entry { self->mkdir = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->mkdir]/
{
	op__mkdir__start(_nfs3_request[self->mkdir]);
	self->mkdir |= 1;
}
fbt:nfsd:nfsd3_proc_mkdir:return /_nfs3_verifies[self->mkdir]/ { op__mkdir__start(_nfs3_request[self->mkdir]); }
fbt:nfsd:nfsd3_proc_mkdir:return /self->mkdir != 0/
{
	op__mkdir__done(_nfs3_request[self->mkdir]);
	self->mkdir = 0;
}

fbt:nfsd:nfsd3_proc_symlink:entry { self->symlink = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->symlink]/
{
	op__symlink__start(_nfs3_request[self->symlink]);
	self->symlink |= 1;
}
fbt:nfsd:nfsd3_proc_symlink:return /_nfs3_verifies[self->symlink]/
{
	op__symlink__start(_nfs3_request[self->symlink]);
}
fbt:nfsd:nfsd3_proc_symlink:return /self->symlink != 0/
{
	op__symlink__done(_nfs3_request[self->symlink]);
	self->symlink = 0;
}

fbt:nfsd:nfsd3_proc_mknod:entry { self->mknod = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->mknod]/
{
	op__mknod__start(_nfs3_request[self->mknod]);
	self->mknod |= 1;
}
fbt:nfsd:nfsd3_proc_mknod:return /_nfs3_verifies[self->mknod]/ { op__mknod__start(_nfs3_request[self->mknod]); }
fbt:nfsd:nfsd3_proc_mknod:return /self->mknod != 0/
{
	op__mknod__done(_nfs3_request[self->mknod]);
	self->mknod = 0;
}

fbt:nfsd:nfsd3_proc_remove:entry { self->remove = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->remove]/
{
	op__remove__start(_nfs3_request[self->remove]);
	self->remove |= 1;
}
fbt:nfsd:nfsd3_proc_remove:return /_nfs3_verifies[self->remove]/ { op__remove__start(_nfs3_request[self->remove]); }
fbt:nfsd:nfsd3_proc_remove:return /self->remove != 0/
{
	op__remove__done(_nfs3_request[self->remove]);
	self->remove = 0;
}

fbt:nfsd:nfsd3_proc_rmdir:entry { self->rmdir = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->rmdir]/
{
	op__rmdir__start(_nfs3_request[self->rmdir]);
	self->rmdir |= 1;
}
fbt:nfsd:nfsd3_proc_rmdir:return /_nfs3_verifies[self->rmdir]/ { op__rmdir__start(_nfs3_request[self->rmdir]); }
fbt:nfsd:nfsd3_proc_rmdir:return /self->rmdir != 0/
{
	op__rmdir__done(_nfs3_request[self->rmdir]);
	self->rmdir = 0;
}

fbt:nfsd:nfsd3_proc_rename:entry { self->rename = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->rename]/
{
	op__rename__start(_nfs3_request[self->rename]);
	self->rename |= 1;
}
fbt:nfsd:nfsd3_proc_rename:return /_nfs3_verifies[self->rename]/ { op__rename__start(_nfs3_request[self->rename]); }
fbt:nfsd:nfsd3_proc_rename:return /self->rename != 0/
{
	op__rename__done(_nfs3_request[self->rename]);
	self->rename = 0;
}

fbt:nfsd:nfsd3_proc_link:entry { self->link = arg0; }
/* The directory is verified first. */
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->link] && _fh_has_file[_nfs3_fh[(struct svc_rqst *)self->link]]/
{
	op__link__start(_nfs3_request[self->link]);
	self->link |= 1;
}
fbt:nfsd:nfsd3_proc_link:return /_nfs3_verifies[self->link]/ { op__link__start(_nfs3_request[self->link]); }
fbt:nfsd:nfsd3_proc_link:return /self->link != 0/
{
	op__link__done(_nfs3_request[self->link]);
	self->link = 0;
}

fbt:nfsd:nfsd3_proc_readdir:entry { self->readdir = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->readdir]/
{
	op__readdir__start(_nfs3_request[self->readdir]);
	self->readdir |= 1;
}
fbt:nfsd:nfsd3_proc_readdir:return /_nfs3_verifies[self->readdir]/
{
	op__readdir__start(_nfs3_request[self->readdir]);
}
fbt:nfsd:nfsd3_proc_readdir:return /self->readdir != 0/
{
	op__readdir__done(_nfs3_request[self->readdir]);
	self->readdir = 0;
}

fbt:nfsd:nfsd3_proc_readdirplus:entry { self->readdirplus = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->readdirplus]/
{
	op__readdirplus__start(_nfs3_request[self->readdirplus]);
	self->readdirplus |= 1;
}
fbt:nfsd:nfsd3_proc_readdirplus:return /_nfs3_verifies[self->readdirplus]/
{
	op__readdirplus__start(_nfs3_request[self->readdirplus]);
}
fbt:nfsd:nfsd3_proc_readdirplus:return /self->readdirplus != 0/
{
	op__readdirplus__done(_nfs3_request[self->readdirplus]);
	self->readdirplus = 0;
}

fbt:nfsd:nfsd3_proc_fsstat:entry { self->fsstat = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->fsstat]/
{
	op__fsstat__start(_nfs3_request[self->fsstat]);
	self->fsstat |= 1;
}
fbt:nfsd:fh_put:entry /self->fsstat & 1/
{
	op__fsstat__done(_nfs3_request[self->fsstat]);
	self->fsstat = 0;
}
fbt:nfsd:nfsd3_proc_fsstat:return /_nfs3_verifies[self->fsstat]/ { op__fsstat__start(_nfs3_request[self->fsstat]); }
fbt:nfsd:nfsd3_proc_fsstat:return /self->fsstat != 0/
{
	op__fsstat__done(_nfs3_request[self->fsstat]);
	self->fsstat = 0;
}

fbt:nfsd:nfsd3_proc_fsinfo:entry { self->fsinfo = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->fsinfo]/
{
	op__fsinfo__start(_nfs3_request[self->fsinfo]);
	self->fsinfo |= 1;
}
fbt:nfsd:fh_put:entry /self->fsinfo & 1/
{
	op__fsinfo__done(_nfs3_request[self->fsinfo]);
	self->fsinfo = 0;
}
fbt:nfsd:nfsd3_proc_fsinfo:return /_nfs3_verifies[self->fsinfo]/ { op__fsinfo__start(_nfs3_request[self->fsinfo]); }
fbt:nfsd:nfsd3_proc_fsinfo:return /self->fsinfo != 0/
{
	op__fsinfo__done(_nfs3_request[self->fsinfo]);
	self->fsinfo = 0;
}

fbt:nfsd:nfsd3_proc_pathconf:entry { self->pathconf = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->pathconf]/
{
	op__pathconf__start(_nfs3_request[self->pathconf]);
	self->pathconf |= 1;
}
fbt:nfsd:fh_put:entry /self->pathconf & 1/
{
	op__pathconf__done(_nfs3_request[self->pathconf]);
	self->pathconf = 0;
}
fbt:nfsd:nfsd3_proc_pathconf:return /_nfs3_verifies[self->pathconf]/
{
	op__pathconf__start(_nfs3_request[self->pathconf]);
}
fbt:nfsd:nfsd3_proc_pathconf:return /self->pathconf != 0/
{
	op__pathconf__done(_nfs3_request[self->pathconf]);
	self->pathconf = 0;
}

fbt:nfsd:nfsd3_proc_commit:entry { self->commit = arg0; }
fbt:nfsd:fh_verify:return /_nfs3_verifies[self->commit]/
{
	op__commit__start(_nfs3_request[self->commit]);
	self->commit |= 1;
}
fbt:nfsd:nfsd3_proc_commit:return /_nfs3_verifies[self->commit]/ { op__commit__start(_nfs3_request[self->commit]); }
fbt:nfsd:nfsd3_proc_commit:return /self->commit != 0/
{
	op__commit__done(_nfs3_request[self->commit]);
	self->commit = 0;
}
