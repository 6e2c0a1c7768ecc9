enum first { ONE = 1, TWO };
enum second { TWO = 2 };
enum third { THREE, THREE };
