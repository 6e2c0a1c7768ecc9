short char a;
long char b;
long long char c;
