pid7:prog:take:entry { trace(args[1]); }
