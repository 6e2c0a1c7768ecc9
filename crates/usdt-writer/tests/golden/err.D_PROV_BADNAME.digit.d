provider web1 { probe start(); };
