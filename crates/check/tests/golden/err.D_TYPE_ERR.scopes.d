typedef int own_t;
BEGIN { trace((D`own)1); trace((C`pid_type_t)1); trace((D`list_head)1); trace(sizeof (struct D`task_struct)); trace(D`own_t); }
