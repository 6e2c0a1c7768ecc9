int;
BEGIN {}
