pid7:prog:take:entry { trace(((struct a.out`con *)arg0)->id); }
