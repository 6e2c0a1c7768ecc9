pid7:prog:take:entry { trace(((struct libx.so`conn *)arg0)->id); }
