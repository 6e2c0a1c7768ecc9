// args: a b
// set: defaultargs argref
BEGIN { trace($3); trace($$3); trace($1); }
