struct sk_buff { unsigned int len; };
struct sk_buff *last;
BEGIN { pcap(curthread, PCAP_IP); pcap("skb", PCAP_IP); pcap(1, PCAP_IP); pcap(*last, PCAP_IP); }
