provider pid { probe start(); };
