/* script */
struct seen { int pid; };
kern:::look { trace(args[0]->pid); }
