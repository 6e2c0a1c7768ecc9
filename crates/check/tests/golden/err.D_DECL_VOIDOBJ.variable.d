void x;
BEGIN {}
