pid7:prog:take:entry { trace(a.out`stripped); }
