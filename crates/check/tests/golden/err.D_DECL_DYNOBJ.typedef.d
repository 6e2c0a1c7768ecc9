typedef int t[string];
BEGIN {}
