sctp:::send {}
plockstat123:::mutex-acquire {}
kinst:::start {}
