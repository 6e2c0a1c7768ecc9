BEGIN
{
	trace(substr("hello", -3));
	trace(rindex(execname, "a", 2) + 1);
	trace(strtok("a,b", ","));
	trace(strtok(NULL, ","));
	trace(strlen(NULL));
	trace(lltostr(arg0, 16));
	trace(ntohs(arg0));
	trace(inet_ntoa((ipaddr_t *)arg0));
	trace(rand() % 2);
}
