// args: 5 bash /bin/ls -7 0x10 97
pid$target:::entry, profile-$6, $2$1::foo_$$2:x { trace($1 + $4 - $5); trace($2); trace($3); trace($$1); trace($$2); trace($0); trace($$target); trace($pid); trace($target); trace($$0); }
