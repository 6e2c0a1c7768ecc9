BEGIN { trace(`jifies); trace(&vmlinux`nothing); trace(xfs`jiffies); trace(secret`jiffies); trace(&`PIDTYPE_PID); }
