/* Variables of other systems are rejected with their name and the reason. */
BEGIN { trace(jid); trace(jailname); trace(machtimestamp); trace(pthread_self); trace(dispatchqaddr); }
