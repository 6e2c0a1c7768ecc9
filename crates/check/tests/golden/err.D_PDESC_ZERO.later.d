sctp:::send {}
plockstat123:::mutex-acquire {}
fpuinfo:::start {}
