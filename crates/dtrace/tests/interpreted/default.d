/*
 * The default output: the heading, the columns, an empty clause, values of every size.
 *
 * probe disk sd io start
 * probe disk sd io done
 * tracer pid=1 cpu=1
 * cpus 2
 * fire disk:::start args=-1,2,3
 * fire disk:::done args=-5,-5 errno=5
 */
BEGIN { trace("begin"); }
disk:::start {}
disk:::done { trace((int)arg0); trace((char)arg1); trace(errno); trace("text"); }
END {}
