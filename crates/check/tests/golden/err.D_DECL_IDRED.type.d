int x;
string x;
int pid;
int a[int];
int a[string];
BEGIN {}
