#!/usr/sbin/dtrace -s
#pragma D option quiet
/* Two providers, the second with types of the system. */
int served;
inline int WEB_MAX = 12;
provider web {
	probe start(int, char *);
	probe a__b__c(void);
	/* Converted, reordered, doubled. */
	probe stop(int code, char *why) : (string why, short code, int code);
};
provider web_db {
	probe process__start(struct task_struct *T) : (psinfo_t *T);
};
#pragma D attributes Evolving/Evolving/Common provider web_db name
