/* script */
struct seen { int pid; };
translator struct seen < struct task_struct *t > { pid = t->pid; };
kern:::look { trace(args[0]->pid); trace(args[1]); }
