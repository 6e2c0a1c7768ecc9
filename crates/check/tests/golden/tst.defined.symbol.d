/* The arm for a symbol that the kernel does not have is not typed. */
BEGIN {
	trace(defined(`jiffies) ? `jiffies : 1); trace(defined(vmlinux`jiffies)); trace(defined(nosuch`jiffies));
	trace(defined(`nosuch) ? `nosuch : 2);
}
BEGIN /!defined(`jiffies)/ { trace(3); }
