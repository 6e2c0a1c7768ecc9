nfsv4:::op-read-start {}
pid123::malloc:entry {}
fpuinfo:::start {}
