provider web { probe a(); };
provider web { probe b(); };
