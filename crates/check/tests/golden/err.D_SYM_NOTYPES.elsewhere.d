BEGIN { trace(pid7`a.out`head); }
