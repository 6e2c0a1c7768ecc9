nfsv4:::op-read-start {}
plockstat123:::mutex-acquire {}
fpuinfo:::start {}
