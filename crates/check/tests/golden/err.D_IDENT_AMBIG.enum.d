enum e { RED };
int RED;
BEGIN { trace((enum e)arg0 == RED); }
