BEGIN { trace((struct list_head)`untyped); trace(`untyped + 1); trace((void)`untyped); trace(-`untyped); }
