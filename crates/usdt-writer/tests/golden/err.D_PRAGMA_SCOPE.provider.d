#pragma D attributes Evolving/Evolving/Common provider syscall provider
provider web { probe start(); };
