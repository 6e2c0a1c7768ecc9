BEGIN { pcap(arg0); }
