int a;
BEGIN { speculate(a); raise(9); }
BEGIN { speculate(a); system("true"); }
BEGIN { speculate(a); stop(); }
BEGIN { speculate(a); copyout(&`jiffies, 0, 8); }
