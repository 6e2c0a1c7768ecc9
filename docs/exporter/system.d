/*
 * Metrics of a system, for dtrace-exporter@system.service: copy this file to /etc/dtrace.
 * Aggregations are metrics, expressions of keys are labels. Prefer keys with few values.
 */
#pragma D option quiet

proc:::exec-success { @execs[execname] = count(); }

syscall:::return
/errno != 0/
{
	@failed_calls[probefunc] = count();
}

io:::start { begun[arg0] = timestamp; }

io:::done
/begun[arg0]/
{
	@disk_bytes[args[1]->dev_statname] = sum(args[0]->b_bcount);
	@disk_latency[args[1]->dev_statname] = quantize(timestamp - begun[arg0]);
	begun[arg0] = 0;
}
