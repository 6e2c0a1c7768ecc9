BEGIN { @a = count(); trace(sizeof (@a)); trace(sizeof (printf("x"))); }
