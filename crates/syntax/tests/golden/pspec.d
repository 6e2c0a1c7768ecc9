// set: pspec
int*x { }
int*y:entry { }
int *z;
