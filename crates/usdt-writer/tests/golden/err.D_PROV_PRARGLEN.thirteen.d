provider web {
	probe a(int, int, int, int, int, int, int, int, int, int, int, int);
	probe b(int, int, int, int, int, int, int, int, int, int, int, int, int);
};
