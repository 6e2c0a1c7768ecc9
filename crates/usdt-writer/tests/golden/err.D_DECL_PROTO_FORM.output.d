provider web {
	probe start(int a, int b) : (int b, int c);
};
