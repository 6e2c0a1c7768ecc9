BEGIN { pcap(arg0, 65536); pcap(arg0, -1); pcap(arg0, "PCAP_IP"); pcap(arg0, curthread); }
