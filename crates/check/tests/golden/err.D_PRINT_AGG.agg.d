struct big { char c[70000]; }; BEGIN { @a = count(); print(@a); }
