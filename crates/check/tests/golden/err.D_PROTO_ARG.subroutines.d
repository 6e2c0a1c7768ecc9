BEGIN { trace(index("a", 1)); trace(strchr("a", "b")); trace(lltostr("1")); trace(inet_ntoa(1)); trace(strtok(1, ",")); }
