BEGIN { guestsym(arg0); @[guestsym(arg1)] = count(); printf("%A", guestsym(arg0)); }
