pid7:prog:take:entry { trace(a.out`hed); }
