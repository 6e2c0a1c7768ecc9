BEGIN { trace(`untyped); trace(ext4`ext4_sync + 1); `untyped = 1; trace(sizeof (`untyped)); }
