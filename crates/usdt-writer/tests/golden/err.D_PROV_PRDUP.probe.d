provider web {
	probe start(int);
	probe start(int);
};
