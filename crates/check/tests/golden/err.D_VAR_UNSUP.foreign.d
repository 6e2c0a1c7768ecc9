/* Variables of other systems are refused by name, with the reason. */
BEGIN { trace(jid); trace(jailname); trace(machtimestamp); trace(pthread_self); trace(dispatchqaddr); trace(vmregs); }
