struct sk_buff { unsigned int len; };
const struct sk_buff *last;
BEGIN { last = (struct sk_buff *)arg0; pcap(last, PCAP_ETHER); pcap(arg0, arg1); pcap((void *)arg0, PCAP_IP); }
