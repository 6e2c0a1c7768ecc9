BEGIN { panic(); breakpoint(); pcap(arg0, 1); }
