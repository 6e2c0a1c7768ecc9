// args: a b
// set: defaultargs
BEGIN { trace($3); trace($$3); trace($1); }
