BEGIN { pcap(arg0, 12); trace(1); pcap(arg1, arg2); }
