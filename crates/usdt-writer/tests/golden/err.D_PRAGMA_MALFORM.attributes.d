#pragma D attributes Evolving/Common provider web provider
provider web { probe start(); };
